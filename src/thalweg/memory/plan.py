"""How much memory an engine takes and how the caches share it. Torch-free: `thalweg plan` and the
engine ask the same function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.config import Rollback
from thalweg.errors import ConfigError
from thalweg.memory.sizes import format_nbytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.config import EngineConfig
    from thalweg.memory.spec import CacheSpec

SLOTS_PER_SEQ = 2
"""Its own, and the snapshot that moves along with its answer."""


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What a model takes before any sequence comes, and what a sequence takes."""

    weights: int
    """Bytes, as the kernels keep them."""
    scratch: int
    """Bytes of the largest pass."""
    specs: tuple[CacheSpec, ...]
    max_model_len: int
    """The model's own context."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Sizes of the pools, id 0 included, and what they allow."""

    num_blocks: int
    num_slots: int
    max_num_seqs: int
    max_model_len: int
    block_nbytes: int
    slot_nbytes: int
    """With its log."""
    rollback: Rollback = Rollback.CHECKPOINT
    log_size: int = 0
    """Tokens that each slot's log has room for."""
    num_host_blocks: int = 1
    num_host_slots: int = 1
    """Of the host tier; with only id 0 nothing is allocated for it."""
    notes: tuple[str, ...] = ()
    """What was asked for and did not fit."""

    @property
    def has_host_tier(self) -> bool:
        return self.num_host_blocks > 1

    @property
    def nbytes(self) -> int:
        blocks, slots = self.num_blocks, self.num_slots
        if self.has_host_tier:
            blocks, slots = blocks + self.num_host_blocks, slots + self.num_host_slots
        return blocks * self.block_nbytes + slots * self.slot_nbytes

    def num_fitting(self, num_tokens: int, block_size: int) -> int:
        """How many sequences of this length, prompt and answer, can run at once."""
        blocks = (self.num_blocks - 1) // -(-num_tokens // block_size)
        return min(self.max_num_seqs, blocks if self.block_nbytes else self.max_num_seqs)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    weights: int
    scratch: int
    caches: CachePlan

    @property
    def nbytes(self) -> int:
        return self.weights + self.scratch + self.caches.nbytes


def plan_memory(model: ModelMemory, config: EngineConfig, *, available: int) -> MemoryPlan:
    """What an engine of this model will take: `config.memory` or, if that is None, `available`.

    Raises `ConfigError` for what cannot be had; what can be had in part is clamped, with a note.
    """
    _context(config, model.max_model_len)
    fixed = model.weights + model.scratch
    total = available if config.memory is None else config.memory
    cache_memory = config.cache_memory
    if cache_memory is None or config.memory is not None:
        left = total - fixed
        if left <= 0:
            where = "this machine has" if config.memory is None else "memory ="
            raise ConfigError(
                f"{where} {format_nbytes(total)}, less than the model's weights "
                f"({format_nbytes(model.weights)}) and a pass ({format_nbytes(model.scratch)})"
            )
        if cache_memory is not None and cache_memory > left:
            raise ConfigError(
                f"cache_memory = {format_nbytes(cache_memory)} does not fit: weights and a pass "
                f"leave {format_nbytes(left)} of memory = {format_nbytes(total)}"
            )
        cache_memory = left if cache_memory is None else cache_memory
    caches = plan_caches(
        model.specs, config, cache_memory=cache_memory, model_max_len=model.max_model_len
    )
    return MemoryPlan(model.weights, model.scratch, caches)


def plan_caches(
    specs: Sequence[CacheSpec], config: EngineConfig, *, cache_memory: int, model_max_len: int
) -> CachePlan:
    """Divide `cache_memory`: state slots, at first at most half of the memory and leaving two
    blocks, and KV blocks from the rest; of each no more than could ever be used. What one of them
    does not need the other gets.

    What does not fit is clamped; a `max_model_len` that was asked for and does not fit, or is
    longer than the model's own context, is a `ConfigError`.
    """
    block_nbytes = sum(spec.block_nbytes(config.block_size) for spec in specs)
    num_drafts = config.num_drafts if config.speculate != "off" else 0
    rollback = choose_rollback(specs, config)
    log_size = num_drafts if rollback.has_log else 0
    slots_per_seq = SLOTS_PER_SEQ + num_drafts - log_size
    slot_nbytes = sum(spec.slot_nbytes(log_size) for spec in specs)
    max_model_len = _context(config, model_max_len)
    blocks_per_seq = -(-max_model_len // config.block_size)
    if config.offload_memory:
        cache_memory -= config.offload_memory
        if cache_memory <= 0:
            raise ConfigError(
                f"offload_memory = {format_nbytes(config.offload_memory)} leaves nothing of "
                f"{format_nbytes(cache_memory + config.offload_memory)} for the caches"
            )

    slots_budget = min(cache_memory // 2, cache_memory - 2 * block_nbytes)
    num_seqs, num_slots = config.max_num_seqs, slots_budget // max(slot_nbytes, 1)
    if slot_nbytes:
        num_seqs = min(num_seqs, num_slots - 1)
    num_blocks = 0
    for _ in range(4):  # each is clamped to the other
        num_blocks = num_seqs * blocks_per_seq + 1
        if block_nbytes:
            left = cache_memory - slot_nbytes * num_slots * bool(slot_nbytes)
            num_blocks = min(num_blocks, left // block_nbytes)
        num_seqs = min(num_seqs, num_blocks - 1)  # each needs a block of its own
        # Beyond what sequences hold, a snapshot for each block is plenty.
        num_slots = slots_per_seq * num_seqs + num_blocks
        if slot_nbytes:
            num_slots = min(num_slots, (cache_memory - block_nbytes * num_blocks) // slot_nbytes)
    capacity = (num_blocks - 1) * config.block_size
    if num_seqs < 1 or capacity < 1:
        least = 2 * (block_nbytes + 2 * slot_nbytes)
        raise ConfigError(f"cache_memory = {cache_memory} is too small: at least {least}")
    if (asked := config.max_model_len) is not None and asked > capacity:
        raise ConfigError(
            f"max_model_len = {asked} does not fit cache_memory = {cache_memory}, "
            f"which holds {capacity} tokens"
        )
    host_blocks, host_slots = _host_tier(
        config, block_nbytes, slot_nbytes, num_blocks=num_blocks, num_seqs=num_seqs
    )
    clamped = ((config.max_num_seqs, num_seqs, "sequences"), (max_model_len, capacity, "tokens"))
    return CachePlan(
        num_blocks,
        num_slots,
        num_seqs,
        min(max_model_len, capacity),
        block_nbytes,
        slot_nbytes,
        rollback,
        log_size,
        host_blocks,
        host_slots,
        tuple(
            f"{most} {what} were asked for, {num} fit" for most, num, what in clamped if num < most
        ),
    )


def choose_rollback(specs: Sequence[CacheSpec], config: EngineConfig) -> Rollback:
    """What `config.rollback` says, or what takes the least memory and time.

    A slot for each draft is to be compared with the log in each of a sequence's slots. Where the
    log is smaller it is faster, too (docs/performance.md): a state is dearer to store than to
    compute again. Without states both are nothing.
    """
    if config.rollback != "auto":
        return Rollback(config.rollback)
    state = sum(spec.slot_nbytes() for spec in specs)
    logged = sum(spec.log_nbytes() for spec in specs)
    if config.speculate == "off" or SLOTS_PER_SEQ * logged >= state:
        return Rollback.CHECKPOINT
    return Rollback.REPLAY_LAZY


def _context(config: EngineConfig, model_max_len: int) -> int:
    asked = config.max_model_len
    if asked is not None and asked > model_max_len:
        raise ConfigError(f"max_model_len = {asked} is longer than the model's {model_max_len}")
    return asked or model_max_len


def _host_tier(
    config: EngineConfig, block_nbytes: int, slot_nbytes: int, *, num_blocks: int, num_seqs: int
) -> tuple[int, int]:
    """Blocks and slots, id 0 included, in the pools' proportion: a slot goes with the blocks that
    a sequence has when all are running."""
    if not config.offload_memory:
        return 1, 1
    blocks_each = max(1, (num_blocks - 1) // num_seqs)
    per_seq = slot_nbytes + blocks_each * block_nbytes
    num_parked = max(
        1, min(num_seqs, (config.offload_memory - slot_nbytes - block_nbytes) // per_seq)
    )
    left = config.offload_memory - (num_parked + 1) * slot_nbytes
    host_blocks = num_blocks if not block_nbytes else min(num_blocks, left // block_nbytes)
    if host_blocks < 2:
        least = 2 * (slot_nbytes + block_nbytes)
        raise ConfigError(
            f"offload_memory = {config.offload_memory} holds no sequence: 0, or at least {least}"
        )
    return host_blocks, num_parked + 1
