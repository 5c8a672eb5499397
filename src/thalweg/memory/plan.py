"""How much of each memory an engine gets. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.config import EngineConfig
    from thalweg.memory.spec import CacheSpec


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Sizes of the pools, id 0 included, and what they allow."""

    num_blocks: int
    num_slots: int
    max_num_seqs: int
    max_model_len: int
    nbytes: int


def plan_caches(
    specs: Sequence[CacheSpec], config: EngineConfig, *, model_max_len: int
) -> CachePlan:
    """Divide `config.cache_memory`: a state slot for each running sequence, at most half of the
    memory and leaving two blocks, and KV blocks from the rest, no more than the sequences could
    ever fill.

    What does not fit is clamped; a `max_model_len` that was asked for and does not fit, or is
    longer than the model's own context, is a `ConfigError`.
    """
    block_nbytes = sum(spec.block_nbytes(config.block_size) for spec in specs)
    slot_nbytes = sum(spec.slot_nbytes() for spec in specs)
    asked = config.max_model_len
    if asked is not None and asked > model_max_len:
        raise ConfigError(f"max_model_len = {asked} is longer than the model's {model_max_len}")
    max_model_len = asked or model_max_len

    slots_budget = min(config.cache_memory // 2, config.cache_memory - 2 * block_nbytes)
    max_num_seqs = config.max_num_seqs
    if slot_nbytes:
        max_num_seqs = min(max_num_seqs, slots_budget // slot_nbytes - 1)
    num_blocks = max_num_seqs * -(-max_model_len // config.block_size) + 1
    # A running sequence holds up to two slots; beyond that, a snapshot for each block is plenty.
    num_slots = 2 * max_num_seqs + num_blocks
    if slot_nbytes:
        num_slots = min(num_slots, slots_budget // slot_nbytes)
    if block_nbytes:
        blocks_budget = config.cache_memory - slot_nbytes * num_slots
        num_blocks = min(num_blocks, blocks_budget // block_nbytes)
    max_num_seqs = min(max_num_seqs, num_blocks - 1)  # each needs a block of its own
    num_slots = min(num_slots, 2 * max_num_seqs + num_blocks)
    capacity = (num_blocks - 1) * config.block_size
    if max_num_seqs < 1 or capacity < 1:
        least = 2 * (block_nbytes + 2 * slot_nbytes)
        raise ConfigError(f"cache_memory = {config.cache_memory} is too small: at least {least}")
    if asked is not None and asked > capacity:
        raise ConfigError(
            f"max_model_len = {asked} does not fit cache_memory = {config.cache_memory}, "
            f"which holds {capacity} tokens"
        )
    return CachePlan(
        num_blocks,
        num_slots,
        max_num_seqs,
        min(max_model_len, capacity),
        num_blocks * block_nbytes + num_slots * slot_nbytes,
    )
