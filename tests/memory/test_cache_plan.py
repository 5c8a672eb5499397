from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import MODELS, tiny
from thalweg.config import EngineConfig, Rollback
from thalweg.errors import ConfigError
from thalweg.memory.offload.storage import HostStorage
from thalweg.memory.plan import CachePlan, choose_rollback, plan_caches
from thalweg.memory.spec import CacheSpec, DType, TensorSpec
from thalweg.memory.storage import CacheStorage


def specs(token_size: int, state_size: int) -> list[CacheSpec]:
    """One layer of each kind; 0 is a layer that is not there."""
    kv = (TensorSpec("k", (token_size,), DType.FLOAT32),)
    state = (TensorSpec("ssm", (state_size,), DType.FLOAT32),)
    return [CacheSpec(kv if token_size else ()), CacheSpec((), state if state_size else ())]


def plan(parts: list[CacheSpec], memory: int, num_seqs: int = 8, length: int = 64) -> CachePlan:
    config = EngineConfig(max_num_seqs=num_seqs, block_size=4)
    return plan_caches(parts, config, cache_memory=memory, model_max_len=length)


sizes = st.integers(0, 60)


@given(sizes, sizes, st.integers(1, 40_000), st.integers(1, 1024), st.integers(1, 300))
@example(25, 1, 900, 1024, 64)  # states so small that a slot for each would leave no two blocks
def test_a_plan_keeps_to_its_memory_or_says_how_much_is_enough(
    token_size: int, state_size: int, memory: int, num_seqs: int, length: int
) -> None:
    parts = specs(token_size, state_size)
    try:
        p = plan(parts, memory, num_seqs, length)
    except ConfigError as refused:
        least = int(re.findall(r"at least (\d+)", str(refused))[0])
        assert least > memory
        plan(parts, least, num_seqs, length)
        return
    assert p.nbytes <= memory
    assert 1 <= p.max_num_seqs <= num_seqs and p.num_slots > p.max_num_seqs
    assert 1 <= p.max_model_len <= min(length, (p.num_blocks - 1) * 4)
    assert p.num_blocks - 1 <= p.max_num_seqs * -(-length // 4), "no more than can be filled"
    assert p.num_slots <= 2 * p.max_num_seqs + p.num_blocks, "ids cost memory too"
    left = memory - p.nbytes
    all_blocks = p.num_blocks - 1 == p.max_num_seqs * -(-length // 4)
    assert all_blocks or left < p.block_nbytes, "blocks were wanted and memory was left"
    all_slots = p.num_slots == 2 * p.max_num_seqs + p.num_blocks
    assert all_slots or left < p.slot_nbytes, "slots were wanted and memory was left"


@pytest.mark.parametrize("name", MODELS)
def test_planned_bytes_are_the_allocated_bytes(name: str) -> None:
    """cases.md M13"""
    model = tiny(MODELS[name])
    config = EngineConfig(max_num_seqs=3)
    p = plan_caches(model.cache_specs, config, cache_memory=1 << 20, model_max_len=200)
    storage = CacheStorage(model.cache_specs, p.num_blocks, p.num_slots, block_size=16)
    assert storage.nbytes == p.nbytes <= 1 << 20


@pytest.mark.parametrize("name", MODELS)
def test_the_host_tier_is_inside_the_same_budget(name: str) -> None:
    """cases.md M13"""
    model = tiny(MODELS[name])
    config = EngineConfig(max_num_seqs=3, offload_memory=300_000)
    p = plan_caches(model.cache_specs, config, cache_memory=1 << 20, model_max_len=200)
    storage = CacheStorage(model.cache_specs, p.num_blocks, p.num_slots, block_size=16)
    host = HostStorage(storage, model.cache_specs, p.num_host_blocks, p.num_host_slots)
    assert host.nbytes <= 300_000
    assert storage.nbytes + host.nbytes == p.nbytes <= 1 << 20


def test_a_host_tier_holds_a_sequence_or_is_refused() -> None:
    parts = specs(10, 100)  # 160 bytes a block, 400 a slot

    def host(nbytes: int) -> CachePlan:
        config = EngineConfig(offload_memory=nbytes, block_size=4, max_num_seqs=4)
        return plan_caches(parts, config, cache_memory=100_000, model_max_len=16)

    with pytest.raises(ConfigError, match=r"offload_memory = 1000 holds no .* at least 1120"):
        host(1000)
    least = host(1120)
    assert (least.num_host_blocks, least.num_host_slots) == (2, 2)
    assert host(0).num_host_blocks == 1 and not host(0).has_host_tier
    assert host(50_000).num_host_slots == 5, "no more than can be preempted"
    with pytest.raises(ConfigError, match="leaves nothing"):
        host(100_000)


def test_more_sequences_than_fit_are_clamped() -> None:
    """cases.md M1"""
    p = plan(specs(4, 100), 10_000, num_seqs=1024)
    assert p.max_num_seqs == 10_000 // 2 // 400 - 1


def test_sequences_that_could_have_no_block_are_not_planned() -> None:
    """Without states nothing else would bound them, nor the ids of their slots."""
    p = plan(specs(4, 0), 10 * 64, num_seqs=10**9)
    assert (p.num_blocks, p.max_num_seqs, p.num_slots) == (10, 9, 28)


def test_a_context_that_was_asked_for_fits_or_is_refused() -> None:
    parts = specs(10, 0)

    def asked(length: int, memory: int) -> CachePlan:
        config = EngineConfig(max_model_len=length, block_size=4)
        return plan_caches(parts, config, cache_memory=memory, model_max_len=100)

    assert asked(40, 11 * 160).max_model_len == 40
    with pytest.raises(ConfigError, match=r"max_model_len = 41 does not fit .* holds 40 tokens"):
        asked(41, 11 * 160)
    with pytest.raises(ConfigError, match="max_model_len = 101 is longer than the model's 100"):
        asked(101, 1 << 20)


@pytest.mark.parametrize("rollback", Rollback, ids=lambda rollback: rollback.value)
@pytest.mark.parametrize("name", MODELS)
def test_a_log_or_spare_slots_are_inside_the_budget(name: str, rollback: Rollback) -> None:
    """cases.md M13"""
    model = tiny(MODELS[name])
    config = EngineConfig(max_num_seqs=3, speculate="lookup", rollback=rollback.value)
    p = plan_caches(model.cache_specs, config, cache_memory=1 << 22, model_max_len=200)
    assert (p.rollback, p.log_size) == (rollback, 4 if rollback.has_log else 0)
    assert p.num_slots == p.num_blocks + 3 * (2 if rollback.has_log else 6)
    storage = CacheStorage(
        model.cache_specs, p.num_blocks, p.num_slots, block_size=16, log_size=p.log_size
    )
    assert storage.nbytes == p.nbytes <= 1 << 22


@pytest.mark.parametrize(
    ("state_size", "logged_size", "chosen"),
    [(0, 0, Rollback.CHECKPOINT), (20, 10, Rollback.CHECKPOINT), (21, 10, Rollback.REPLAY_LAZY)],
)
def test_the_cheapest_rollback_is_chosen(
    state_size: int, logged_size: int, chosen: Rollback
) -> None:
    """A log where states are large, spare slots where they are not; nothing without drafts."""
    state = (TensorSpec("ssm", (state_size,), DType.FLOAT32),) if state_size else ()
    logged = (TensorSpec("log", (logged_size,), DType.FLOAT32),) if logged_size else ()
    parts = [CacheSpec((TensorSpec("k", (4,), DType.FLOAT32),), state, logged)]
    for speculate, expected in (("lookup", chosen), ("off", Rollback.CHECKPOINT)):
        config = EngineConfig(speculate=speculate)
        assert choose_rollback(parts, config) is expected
        p = plan_caches(parts, config, cache_memory=1 << 20, model_max_len=64)
        assert p.rollback is expected
