"""How the server listens, whom it lets in, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from thalweg.cli.byte_size import parse_byte_size
from thalweg.cli.usage_error import UsageError
from thalweg.config.server import TOOL_FORMATS, ServerConfig

_server = partial(typer.Option, rich_help_panel="Server", show_default=False)


def read_config(context: typer.Context, path: str | None) -> str | None:
    """Take a file's values for the options that neither the command nor the environment gives."""
    if path is None:
        return None
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a list of options and their values")
    given = {str(name).replace("-", "_"): value for name, value in values.items()}
    known = {parameter.name for parameter in context.command.params} - {"config", "print_config"}
    if unknown := sorted(given.keys() - known):
        raise UsageError(f"{path}: there is no option {unknown[0]!r}")
    context.default_map = {name: value for name, value in given.items() if value is not None}
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """None: not given. Names and meanings are those of `ServerConfig`."""

    path: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="The same as --model.", show_default=False),
    ] = None
    host: Annotated[
        str | None, _server(help="Address to listen at. Default 127.0.0.1: this machine alone.")
    ] = None
    port: Annotated[int | None, _server(help="0: any that is free. Default 8000.")] = None
    api_keys: Annotated[
        list[str] | None,
        _server("--api-key", help="Requests must bring one of these. Repeatable.", metavar="KEY"),
    ] = None
    allowed_hosts: Annotated[
        list[str] | None,
        _server(
            "--allowed-host",
            metavar="NAME",
            help="Clients may call the server so, beside --host and localhost. Repeatable.",
        ),
    ] = None
    served_model_names: Annotated[
        list[str] | None,
        _server(
            "--served-model-name",
            metavar="NAME",
            help="What requests call the model. Repeatable. Default: the file's name.",
        ),
    ] = None
    max_body_size: Annotated[
        int | None,
        _server(parser=parse_byte_size, metavar="SIZE", help="Of a request. Default 8MiB."),
    ] = None
    request_timeout: Annotated[
        float | None, _server(help="Seconds after which an answer ends. Default: none.")
    ] = None
    min_priority: Annotated[
        int | None,
        _server(help="Most urgent priority that requests may ask for, lower is more. Default 0."),
    ] = None
    keep_alive: Annotated[
        float | None, _server(help="Seconds of silence between comments in a stream. Default 10.")
    ] = None
    drain_timeout: Annotated[
        float | None, _server(help="Seconds that answers get to end at the end. Default 60.")
    ] = None
    cors_origins: Annotated[
        list[str] | None,
        _server("--cors-origin", metavar="URL", help="Pages from there may ask. Repeatable."),
    ] = None
    tool_format: Annotated[
        str | None,
        _server(help=f"How the model calls tools: {', '.join(TOOL_FORMATS)}. Default auto."),
    ] = None
    log_json: Annotated[bool | None, _server("--log-json", help="Log lines are JSON.")] = None
    config: Annotated[
        str | None,
        _server(
            metavar="FILE",
            is_eager=True,
            callback=read_config,
            help="YAML: option names and values, used where neither flag nor environment is.",
        ),
    ] = None
    print_config: Annotated[
        bool, _server("--print-config", help="Print all options as YAML and end.")
    ] = False

    def server_config(self) -> ServerConfig:
        """Raises `ConfigError`."""
        names = [field.name for field in fields(ServerConfig)]
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return ServerConfig(**{n: v for n, v in (given | lists).items() if v is not None})


def config_as_yaml(values: dict[str, Any]) -> str:
    """As `--config` reads it; keys are secrets and not shown."""
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    plain["api_keys"] = ["(hidden)"] * len(plain["api_keys"])
    return str(yaml.safe_dump(plain, sort_keys=False))
