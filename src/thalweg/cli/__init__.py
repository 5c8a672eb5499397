"""The `thalweg` command. One file per subcommand; torch is imported when one really runs."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from thalweg import __version__
from thalweg.cli.bench import bench
from thalweg.cli.chat import chat
from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.generate import generate
from thalweg.cli.inspect import inspect
from thalweg.cli.plan import plan
from thalweg.cli.selfcheck import selfcheck
from thalweg.cli.serve import serve
from thalweg.errors import ThalwegError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    help="An inference engine for hybrid LLMs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(generate)
app.command()(chat)
app.command()(bench)
app.command()(inspect)
app.command()(plan)
app.command()(selfcheck)
app.command(context_settings={"auto_envvar_prefix": "THALWEG"})(serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"thalweg {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print it.")
    ] = False,
) -> None:
    pass


def main() -> None:
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code. What a user did wrong is one line on standard error."""
    if sys.stdin is None:  # closed by whoever started us
        sys.stdin = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal knows every one
    try:
        code = app(arguments, prog_name="thalweg", standalone_mode=False)
    except typer.TyperException as error:
        return _fail(error.format_message())
    except (ThalwegError, OSError) as error:
        return _fail(str(error))
    return int(code or ExitCode.OK)


def _fail(message: str) -> ExitCode:
    if message:  # without one, help was printed instead
        print(f"thalweg: error: {' '.join(message.split())}", file=sys.stderr)
    return ExitCode.ERROR
