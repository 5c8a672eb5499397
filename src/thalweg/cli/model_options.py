"""Which model, and how it runs: the options of every command that loads one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thalweg.cli.byte_size import parse_byte_size
from thalweg.config import default_model
from thalweg.config.engine import DEVICES, DRAFTERS, DTYPES, KERNELS, KV_DTYPES, QUANTIZE, ROLLBACKS
from thalweg.models import default_model_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg import LLM
    from thalweg.models.build import ExecutionPlan

_model = partial(typer.Option, rich_help_panel="Model", show_default=False)
_engine = partial(typer.Option, rich_help_panel="Engine", show_default=False)


def _one_of(values: Sequence[str]) -> str:
    """The first is the default."""
    return f"{', '.join(values)}. Default {values[0]}."


# Those that a memory plan depends on; `thalweg plan` has them too.
Dtype = Annotated[str | None, _engine(help=_one_of(DTYPES))]
KVDtype = Annotated[str | None, _engine(help=f"Of the KV cache: {_one_of(tuple(KV_DTYPES))}")]
Quantize = Annotated[
    str | None,
    _engine(help=f"Round the matrices to fewer bits: {_one_of(('none', *QUANTIZE))}"),
]
Kernels = Annotated[str | None, _engine(help=_one_of(KERNELS))]
Memory = Annotated[
    int | None,
    _engine(
        parser=parse_byte_size,
        metavar="SIZE",
        help="For everything, e.g. 512MiB or 2GiB. Default: what the machine has free.",
    ),
]
CacheMemory = Annotated[
    int | None,
    _engine(
        parser=parse_byte_size,
        metavar="SIZE",
        help="Of it for KV cache and recurrent states. Default: all that is left.",
    ),
]
OffloadMemory = Annotated[
    int | None,
    _engine(
        parser=parse_byte_size,
        metavar="SIZE",
        help="Of the caches' memory, for sequences that give up their place. Default 0.",
    ),
]
MaxNumBatchedTokens = Annotated[int | None, _engine(help="New tokens in one pass. Default 512.")]
BlockSize = Annotated[int | None, _engine(help="Tokens in a KV block. Default 16.")]
Speculate = Annotated[str | None, _engine(help="Guess tokens ahead: " + _one_of(DRAFTERS))]
NumDrafts = Annotated[int | None, _engine(help="Guesses in one pass, at most. Default 4.")]
Rollback = Annotated[
    str | None, _engine(help=f"How states forget wrong guesses: {_one_of(ROLLBACKS)}")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """None: not given. Names and meanings are those of `EngineConfig`."""

    model: Annotated[
        str | None,
        _model(
            "--model",
            "-m",
            help="Directory or GGUF file. Default: $THALWEG_MODEL, else the bundled one.",
        ),
    ] = None
    verbose: Annotated[
        bool, _model("--verbose", "-v", help="Tell what was loaded and what computes it.")
    ] = False

    dtype: Dtype = None
    kv_dtype: KVDtype = None
    quantize: Quantize = None
    kernels: Kernels = None
    device: Annotated[str | None, _engine(help=_one_of(DEVICES))] = None
    threads: Annotated[int | None, _engine(help="Default: the cores of this process.")] = None
    memory: Memory = None
    cache_memory: CacheMemory = None
    offload_memory: OffloadMemory = None
    max_model_len: Annotated[
        int | None, _engine(help="Longest prompt plus answer. Default: the model's, if it fits.")
    ] = None
    max_num_seqs: Annotated[int | None, _engine(help="Sequences running at once. Default 64.")] = (
        None
    )
    max_num_batched_tokens: MaxNumBatchedTokens = None
    max_num_waiting: Annotated[
        int | None, _engine(help="Requests that may wait for their turn. Default 1024.")
    ] = None
    max_inter_token_ms: Annotated[
        float | None,
        _engine(help="Milliseconds between two tokens of an answer while prompts are computed."),
    ] = None
    block_size: BlockSize = None
    prefix_cache: Annotated[
        bool | None,
        _engine(
            "--prefix-cache/--no-prefix-cache",
            help="Start prompts where an earlier one began alike. Default: yes.",
        ),
    ] = None
    snapshot_interval: Annotated[
        int | None, _engine(help="Tokens between state snapshots in a prompt. Default 64.")
    ] = None
    trace_file: Annotated[
        str | None,
        _engine(metavar="FILE", help="Write every decision of the scheduler there."),
    ] = None

    speculate: Speculate = None
    num_drafts: NumDrafts = None
    rollback: Rollback = None

    def path(self) -> str:
        return model_path(self.model)

    def given(self) -> dict[str, Any]:
        """Fields of `EngineConfig` that were given."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        del options["model"], options["verbose"]
        return {name: value for name, value in options.items() if value is not None}


def model_path(named: str | None) -> str:
    """The model that was named, else the environment's, else the bundled one."""
    return named or default_model() or str(default_model_path())


def open_model(options: ModelOptions) -> LLM:
    """Load it, with a progress bar if someone is watching. This is where torch is imported."""
    path = options.path()

    from thalweg import LLM
    from thalweg.cli.progress import loading_progress

    with loading_progress(path) as progress:
        llm = LLM(path, progress=progress, **options.given())
    if (note := why_slow(llm.loaded.execution)) is not None:
        print(f"thalweg: {note}", file=sys.stderr)
    if options.max_num_seqs is not None and not options.verbose:
        for note in llm.loaded.caches.notes:
            print(f"thalweg: {note}", file=sys.stderr)
    if options.verbose:
        from thalweg.cli.about_model import print_about

        print_about(llm)
    return llm


def why_slow(execution: ExecutionPlan) -> str | None:
    """What to tell whoever runs without the fast kernels."""
    products = [choice for choice in execution.choices if choice.op == "linear"]
    if any(choice.kernel == "reference" for choice in products):
        return "the reference kernels are slow: they are the specification, in plain loops"
    if any("the extension is not built" in why for choice in products for why in choice.rejected):
        return (
            "slow: the compiled kernels are not built; install a C++ compiler, then thalweg again"
        )
    return None
