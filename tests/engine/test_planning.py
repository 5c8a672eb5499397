"""How memory is divided, and that what is planned is what is allocated (M1, M13)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import MODELS, PLAIN, TH
from thalweg.config import EngineConfig, ModelConfig
from thalweg.errors import ConfigError
from thalweg.layers.cache_spec import cache_spec
from thalweg.memory.plan import CachePlan, plan_caches
from thalweg.memory.spec import CacheSpec, DType
from thalweg.memory.storage import CacheStorage


def specs_of(config: ModelConfig, dtype: str = "float32") -> list[CacheSpec]:
    return [cache_spec(layer.mixer, DType.named(dtype)) for layer in config.layers]


def slot_nbytes(config: ModelConfig) -> int:
    return sum(spec.slot_nbytes() for spec in specs_of(config))


def block_nbytes(config: ModelConfig, block_size: int = 16) -> int:
    return sum(spec.block_nbytes(block_size) for spec in specs_of(config))


def plan(config: ModelConfig, *, model_max_len: int = 4096, **options: int) -> CachePlan:
    return plan_caches(specs_of(config), EngineConfig(**options), model_max_len=model_max_len)  # type: ignore[arg-type]


def refusal(config: ModelConfig, **options: int) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(config, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(["float32", "float64", "bfloat16"]),
    st.integers(1, 40),
    st.integers(1, 100),
    st.integers(1, 600),
    st.integers(1, 1 << 22),
)
def test_planned_bytes_are_allocated_bytes_and_within_the_budget(
    name: str, dtype: str, block_size: int, max_num_seqs: int, model_max_len: int, memory: int
) -> None:
    specs = specs_of(MODELS[name], dtype)
    config = EngineConfig(
        dtype=dtype, block_size=block_size, max_num_seqs=max_num_seqs, cache_memory=memory
    )
    try:
        got = plan_caches(specs, config, model_max_len=model_max_len)
    except ConfigError as error:
        least = int(re.findall(r"at least (\d+)", str(error))[0])
        assert memory < least
        enough = EngineConfig(
            dtype=dtype, block_size=block_size, max_num_seqs=max_num_seqs, cache_memory=least
        )
        got = plan_caches(specs, enough, model_max_len=model_max_len)
        assert got.nbytes <= least
        return
    storage = CacheStorage(specs, got.num_blocks, got.num_slots, block_size=block_size)
    assert got.nbytes == storage.nbytes <= memory
    assert 1 <= got.max_num_seqs <= max_num_seqs
    assert got.num_slots == got.max_num_seqs + 1
    assert 1 <= got.max_model_len <= model_max_len
    assert (got.num_blocks - 1) * block_size >= got.max_model_len


def test_with_room_for_all_nothing_is_clamped_and_nothing_wasted() -> None:
    got = plan(TH, model_max_len=100, max_num_seqs=3)
    assert got == CachePlan(3 * 7 + 1, 4, 3, 100, 22 * block_nbytes(TH) + 4 * slot_nbytes(TH))


def test_too_many_sequences_are_clamped_to_half_of_the_memory() -> None:
    """M1"""
    memory = 20 * slot_nbytes(TH)
    got = plan(TH, max_num_seqs=1024, cache_memory=memory)
    assert got.max_num_seqs == 9
    assert got.num_blocks == 10 * slot_nbytes(TH) // block_nbytes(TH)


def test_a_model_without_states_has_slots_for_nothing() -> None:
    got = plan(PLAIN, max_num_seqs=1024, cache_memory=10 * block_nbytes(PLAIN), model_max_len=64)
    assert (got.max_num_seqs, got.num_blocks) == (1024, 10)
    assert got.nbytes == 10 * block_nbytes(PLAIN)


def test_the_context_is_clamped_to_what_fits_unless_it_was_asked_for() -> None:
    memory = 5 * block_nbytes(PLAIN)
    assert plan(PLAIN, cache_memory=memory).max_model_len == 64
    assert plan(PLAIN, cache_memory=memory, max_model_len=64).max_model_len == 64
    message = refusal(PLAIN, cache_memory=memory, max_model_len=65)
    assert message == (
        f"max_model_len = 65 does not fit cache_memory = {memory}, which holds 64 tokens"
    )


def test_a_longer_context_than_the_models_is_refused() -> None:
    assert (
        refusal(PLAIN, max_model_len=4097) == "max_model_len = 4097 is longer than the model's 4096"
    )


@pytest.mark.parametrize("config", [TH, PLAIN], ids=["hybrid", "plain"])
def test_too_little_memory_is_refused_with_what_is_enough(config: ModelConfig) -> None:
    message = refusal(config, cache_memory=1000)
    match = re.fullmatch(r"cache_memory = 1000 is too small: at least (\d+)", message)
    assert match
    assert plan(config, cache_memory=int(match[1])).max_num_seqs >= 1
