"""`thalweg plan`: what a model would take here and what fits beside it. Reads config and headers;
torch is not imported."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from thalweg.cli.byte_size import parse_byte_size
from thalweg.cli.exit_codes import ExitCode
from thalweg.config.engine import DTYPES


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Directory or GGUF file.")],
    memory: Annotated[
        int | None,
        typer.Option(
            parser=parse_byte_size,
            metavar="SIZE",
            help="For everything, e.g. 16GiB. Default: what this machine has free.",
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option("--max-seqs", "--max-num-seqs", help="Sequences running at once. Default 64."),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            "--context", "--max-model-len", help="Longest prompt plus answer. Default: the model's."
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help=f"{', '.join(DTYPES)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> ExitCode:
    """Tell how a model's memory would be divided, and how many sequences of which length fit."""
    from thalweg.cli.plan_report import plan_report

    options: dict[str, Any] = {
        "memory": memory,
        "max_num_seqs": max_num_seqs,
        "max_model_len": max_model_len,
        "dtype": dtype,
    }
    given = {name: value for name, value in options.items() if value is not None}
    report = plan_report(model, given)
    print(json.dumps(asdict(report), indent=2) if as_json else report.text())
    return ExitCode.OK
