"""`thalweg serve`: an OpenAI-compatible server."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.model_options import ModelOptions, open_model
from thalweg.cli.option_groups import option_groups
from thalweg.cli.serve_options import ServeOptions, config_as_yaml
from thalweg.config import engine_config


@option_groups
def serve(options: ServeOptions, model: ModelOptions) -> ExitCode:
    """Answer over HTTP as OpenAI's API does, with a page to chat at /.

    Every option may also be given as an environment variable, such as THALWEG_PORT, or in a YAML
    file; a flag wins over the environment, and that over the file.

    Exit codes: 0 told to end, 1 the model or the options are wrong, 2 wrong usage.
    """
    if options.path is not None:
        model = replace(model, model=options.path)
    server = options.server_config()
    if options.print_config:
        values = {"model": model.model, **asdict(engine_config(**model.given())), **asdict(server)}
        print(config_as_yaml(values), end="")
        return ExitCode.OK
    name = Path(model.path()).name.removesuffix(".gguf") or "model"
    llm = open_model(model)
    if llm.loaded.template is None:
        note = "the model has no chat template: only /v1/completions works"
        print(f"thalweg: {note}", file=sys.stderr)

    from thalweg.server.run import serve as run

    run(llm.loaded, server, name=name)
    return ExitCode.OK
