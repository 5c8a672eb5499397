"""`thalweg inspect`: what a checkpoint is, from its headers; no weight is read."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from thalweg.cli.exit_codes import ExitCode


def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Directory or GGUF file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> ExitCode:
    """Tell what a model is and how it would be loaded: architecture, sizes, tensor types,
    tokenizer, chat template, and what is converted on the way."""
    from thalweg.cli.inspect_report import inspection

    found = inspection(file)
    print(json.dumps(asdict(found), ensure_ascii=False, indent=2) if as_json else found.text())
    return ExitCode.OK
