"""The engine's options, and the one place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from thalweg.config.rollback import Rollback
from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES = ("float32", "float64", "bfloat16")
DEVICES = ("cpu",)
KV_DTYPES = {"auto": None, "fp32": "float32", "bf16": "bfloat16"}
"""Names of KV dtypes; auto is the model's."""
QUANTIZE = {"q8": "Q8_0", "q4": "Q4_0"}
"""The type of GGUF's blocks that matrices are rounded to, by name."""
DRAFTERS = ("off", "lookup", "mtp", "auto")
MAX_DRAFTS = 16
ROLLBACKS = ("auto", *(rollback.value for rollback in Rollback))
KERNELS = ("auto", "cpu", "onednn", "torch", "reference")
MAX_THREADS = 1024
"""More than systems lightly give to one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Fixed for the life of an engine. Values out of range raise `ConfigError`."""

    device: str = "cpu"
    dtype: str = "float32"
    """Of weights and activations. Recurrent state is float32, or float64 with float64."""
    kv_dtype: str = "auto"
    """Of KV rows: `fp32` or `bf16`; `auto` is that of activations. Attention reads what is stored,
    so with bf16 its rows are rounded, also those of the same pass."""
    quantize: str = "none"
    """Round the matrices of a checkpoint that is not quantised to groups of 8 or 4 bits: `q8`,
    `q4`."""
    kernels: str = "auto"
    """`auto` takes the fastest kernel of each op; a name skips every faster kind."""
    threads: int | None = None
    """Threads of a pass; None is the physical cores that this process may use."""
    block_size: int = 16
    """Tokens in a block of the paged KV cache."""
    max_model_len: int | None = None
    """Longest prompt plus answer, in tokens; None is the least of the model's and what fits."""
    max_num_seqs: int = 64
    """Sequences that may be running at once."""
    max_num_batched_tokens: int = 512
    """New tokens in one pass: longer prompts are computed in chunks."""
    max_num_waiting: int = 1024
    """Requests that may wait for their turn; more are refused with `QueueFull`."""
    max_inter_token_ms: float | None = None
    """While answers are running, passes are kept to about so many milliseconds: prompts that are
    computed meanwhile get smaller chunks. None: passes are as full as they may be."""
    memory: int | None = None
    """Bytes for everything: weights, passes and caches. None: what the machine has free."""
    cache_memory: int | None = None
    """Bytes of it for the KV cache and the recurrent states. None: all that the rest leaves."""
    offload_memory: int = 0
    """Bytes of the caches' memory for sequences that have to give up their place: they are moved
    there and back instead of being computed again."""
    prefix_cache: bool = True
    """Start a prompt where an earlier one, or its answer, began alike."""
    trace_file: str | None = None
    """Where to write down all that the scheduler is given and decides, as lines of JSON with the
    prompts' token ids in them. A file that exists is replaced."""
    snapshot_interval: int = 64
    """Tokens between state snapshots in a long prompt: a prompt that branches off an earlier one
    computes up to so many again the first time."""
    speculate: str = "off"
    """Who guesses tokens ahead: `lookup` finds them where the last ones occurred before, `mtp` is
    the model's own multi-token-prediction head, `auto` is that if there is one and else lookup.
    A guess changes the speed and nothing else."""
    num_drafts: int = 4
    """Guesses in one pass, at most; 1 to 16."""
    rollback: str = "auto"
    """How recurrent states forget wrong guesses, a `Rollback` by name; `auto` is the cheapest one
    for the model. It changes memory and speed and nothing else."""

    def __post_init__(self) -> None:
        for name, allowed in (
            ("device", DEVICES),
            ("dtype", DTYPES),
            ("kv_dtype", tuple(KV_DTYPES)),
            ("quantize", ("none", *QUANTIZE)),
            ("kernels", KERNELS),
            ("speculate", DRAFTERS),
            ("rollback", ROLLBACKS),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name} = {value!r} is not available: use {', '.join(allowed)}")
        for name, least in (
            ("block_size", 1),
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", 1),
            ("max_num_waiting", 1),
            ("memory", 1),
            ("cache_memory", 1),
            ("offload_memory", 0),
            ("snapshot_interval", 1),
            ("max_model_len", 1),
            ("threads", 1),
            ("num_drafts", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("max_model_len", "threads", "memory", "cache_memory"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} = {value!r} is not allowed: an integer >= {least}")
        if self.threads is not None and self.threads > MAX_THREADS:
            most = f"an integer from 1 to {MAX_THREADS}"
            raise ConfigError(f"threads = {self.threads} is not allowed: {most}")
        bound = self.max_inter_token_ms
        is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
        if bound is not None and not (is_number and 0 < bound < float("inf")):
            raise ConfigError(f"max_inter_token_ms = {bound!r} is not allowed: a number > 0")
        if self.trace_file is not None and not isinstance(self.trace_file, (str, os.PathLike)):
            raise ConfigError(f"trace_file = {self.trace_file!r:.80} is not allowed: a path")
        if self.num_drafts > MAX_DRAFTS:
            most = f"an integer from 1 to {MAX_DRAFTS}"
            raise ConfigError(f"num_drafts = {self.num_drafts} is not allowed: {most}")
        if self.rollback != "auto" and self.speculate == "off":
            raise ConfigError(f"rollback = {self.rollback!r} is of no use without speculate")
        if not isinstance(self.prefix_cache, bool):
            raise ConfigError(f"prefix_cache = {self.prefix_cache!r} is not allowed: True or False")


def engine_config(environ: Mapping[str, str] | None = None, /, **options: Any) -> EngineConfig:
    """An `EngineConfig` from keyword options, with defaults from the environment.

    `THALWEG_KERNELS` stands for `kernels`, `THALWEG_THREADS` for `threads`; an option given
    here wins over its variable. Unknown options raise `ConfigError`.
    """
    environ = os.environ if environ is None else environ
    known = EngineConfig.__dataclass_fields__
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigError(f"unknown option {unknown[0]!r}: use {', '.join(known)}")
    if "kernels" not in options and (kernels := environ.get("THALWEG_KERNELS")):
        options["kernels"] = kernels
    if "threads" not in options and (threads := environ.get("THALWEG_THREADS")):
        if not threads.isdecimal() or len(threads) > len(str(MAX_THREADS)):
            allowed = f"an integer from 1 to {MAX_THREADS}"
            raise ConfigError(f"THALWEG_THREADS = {threads!r:.80} is not allowed: {allowed}")
        options["threads"] = int(threads)
    return replace(EngineConfig(), **options)


def default_model() -> str | None:
    """The model to use when none is named: `THALWEG_MODEL`, or None."""
    return os.environ.get("THALWEG_MODEL") or None


def kernel_level() -> str | None:
    """The instruction set that the compiled kernels are held to: `THALWEG_KERNEL_LEVEL`, or None
    for the best of this machine. The bits of a result do not depend on it."""
    return os.environ.get("THALWEG_KERNEL_LEVEL") or None
