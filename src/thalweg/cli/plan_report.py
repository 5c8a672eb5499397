"""What `thalweg plan` tells, as data and as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.config import engine_config
from thalweg.memory.available import available_nbytes
from thalweg.memory.plan import plan_memory
from thalweg.memory.sizes import format_nbytes
from thalweg.models.headers import read_config, read_headers
from thalweg.models.memory import memory_without_weights, model_memory
from thalweg.models.mtp_plan import settle_mtp, settle_mtp_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.config import EngineConfig
    from thalweg.memory.plan import ModelMemory

LENGTHS = (512, 2048, 8192, 32768, 131072, 524288)


@dataclass(frozen=True, slots=True)
class Fitting:
    num_tokens: int
    num_seqs: int


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Sizes in bytes."""

    memory: int
    """What may be taken."""
    weights: int
    scratch: int
    caches: int
    kv_per_token: int
    state_per_sequence: int
    num_kv_tokens: int
    num_states: int
    num_snapshots: int
    """States left for the prefix cache while `max_num_seqs` are running."""
    max_num_seqs: int
    max_model_len: int
    fitting: tuple[Fitting, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        left = self.memory - self.weights - self.scratch - self.caches
        size = format_nbytes
        rows = [
            ("memory", f"{size(self.memory)}, of which {size(left)} stay unused"),
            ("weights", size(self.weights)),
            ("pass", f"{size(self.scratch)} at most"),
            ("caches", size(self.caches)),
            ("KV", f"{size(self.kv_per_token)} a token: {self.num_kv_tokens} tokens"),
        ]
        if self.state_per_sequence:
            states = f"{size(self.state_per_sequence)} a sequence: {self.num_states} states, "
            rows.append(("state", f"{states}{self.num_snapshots} of them for snapshots"))
        rows += [
            ("sequences", f"at most {self.max_num_seqs} at once, of {self.max_model_len} tokens"),
            *(("", f"{f.num_seqs:>6} of {f.num_tokens} tokens") for f in self.fitting),
            *(("note", note) for note in self.notes),
        ]
        return "\n".join(f"{name:<10} {value}" for name, value in rows)


def plan_report(path: str, options: Mapping[str, Any]) -> PlanReport:
    """`options` are fields of `EngineConfig`. Raises `CheckpointError` and `ConfigError`."""
    config = engine_config(**options)
    model, notes = _model_memory(path, config)
    available = available_nbytes()
    memory = plan_memory(model, config, available=available)
    caches, size = memory.caches, config.block_size
    lengths = [n for n in LENGTHS if n < caches.max_model_len]
    return PlanReport(
        memory=available if config.memory is None else config.memory,
        weights=memory.weights,
        scratch=memory.scratch,
        caches=caches.nbytes,
        kv_per_token=caches.block_nbytes // size,
        state_per_sequence=caches.slot_nbytes,
        num_kv_tokens=(caches.num_blocks - 1) * size,
        num_states=caches.num_slots - 1,
        num_snapshots=caches.num_slots - 1 - caches.max_num_seqs,
        max_num_seqs=caches.max_num_seqs,
        max_model_len=caches.max_model_len,
        fitting=tuple(
            Fitting(n, caches.num_fitting(n, size)) for n in [*lengths, caches.max_model_len]
        ),
        notes=(*notes, *caches.notes),
    )


def _model_memory(path: str, config: EngineConfig) -> tuple[ModelMemory, tuple[str, ...]]:
    if (plan := read_config(Path(path))) is not None:
        notes = ("there are no weights in the directory: taken to be bfloat16",)
        return memory_without_weights(settle_mtp(plan, config), config), notes
    return model_memory(settle_mtp_weights(read_headers(path), config), config), ()
