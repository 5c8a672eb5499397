"""`thalweg plan`: what a model would take here and what fits beside it. Reads config and headers;
torch is not imported."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

import typer

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.model_options import (
    BlockSize,
    CacheMemory,
    Dtype,
    Kernels,
    KVDtype,
    MaxNumBatchedTokens,
    Memory,
    NumDrafts,
    OffloadMemory,
    Quantize,
    Rollback,
    Speculate,
    model_path,
)
from thalweg.cli.option_groups import option_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """None: not given. Names and meanings are those of `EngineConfig`."""

    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="Directory or GGUF file. Default: $THALWEG_MODEL, else the bundled one.",
            show_default=False,
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False

    memory: Memory = None
    cache_memory: CacheMemory = None
    offload_memory: OffloadMemory = None
    max_num_seqs: Annotated[
        int | None,
        typer.Option("--max-seqs", "--max-num-seqs", help="Sequences running at once. Default 64."),
    ] = None
    max_model_len: Annotated[
        int | None,
        typer.Option(
            "--context", "--max-model-len", help="Longest prompt plus answer. Default: the model's."
        ),
    ] = None
    max_num_batched_tokens: MaxNumBatchedTokens = None
    block_size: BlockSize = None
    dtype: Dtype = None
    kv_dtype: KVDtype = None
    quantize: Quantize = None
    kernels: Kernels = None
    speculate: Speculate = None
    num_drafts: NumDrafts = None
    rollback: Rollback = None

    def given(self) -> dict[str, Any]:
        """Fields of `EngineConfig` that were given."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        del options["model"], options["as_json"]
        return {name: value for name, value in options.items() if value is not None}


@option_groups
def plan(wanted: PlanOptions) -> ExitCode:
    """Tell how a model's memory would be divided, and how many sequences of which length fit."""
    from thalweg.cli.plan_report import plan_report

    report = plan_report(model_path(wanted.model), wanted.given())
    print(json.dumps(asdict(report), indent=2) if wanted.as_json else report.text())
    return ExitCode.OK
