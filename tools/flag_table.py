"""Print the flags of `thalweg serve` as the Markdown table that docs/server.md holds."""

from __future__ import annotations

import typer

from thalweg.cli import app


def flag_table() -> str:
    command = typer.main.get_command(app)
    serve = command.commands["serve"]  # type: ignore[attr-defined]
    rows = ["| flag | environment | what |", "| --- | --- | --- |"]
    for parameter in serve.params:
        text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
        flags = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            rows.append(f"| `MODEL` | | {text} |")
        elif parameter.name != "help":
            rows.append(f"| `{flags}` | `THALWEG_{parameter.name.upper()}` | {text} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(flag_table())
