"""The fast kernels in whole models: close to the reference, over all that memory may do."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import MODELS, oracle, tiny
from programs import random_program, run_program
from world import Part, Specification, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def within(tolerance: float) -> Callable[[Tensor, Tensor], bool]:
    def agrees(a: Tensor, b: Tensor) -> bool:
        same_kind = a.dtype == b.dtype and a.shape == b.shape
        return same_kind and bool((a - b).abs().max() <= tolerance * (1 + b.abs().max()))

    return agrees


def fast_world(
    name: str, dtype: torch.dtype, tolerance: float, *, block_size: int = 16, size: int = 64
) -> World:
    fast = tiny(MODELS[name], "auto", dtype=dtype, block_size=block_size)
    slow = tiny(MODELS[name], "reference", dtype=dtype, block_size=block_size)
    return World(fast, size, size, None, Specification(oracle(slow), within(tolerance)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-11), (torch.float32, 2e-4), (torch.bfloat16, 0.15)],
    ids=str,
)
def test_the_fastest_kernels_compute_what_the_reference_does(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    world = fast_world(name, dtype, tolerance)
    for n in (1, 7, 20):
        world.start([(11 * i + n) % 32 for i in range(n)])
    world.step([Part(0, (1,)), Part(1, (2, 3, 4, 5), 3, 1), Part(2, (6,) * 5)], (2, 1))
    world.step([Part(0, (1, 2), 1, 0), Part(1, (2,)), Part(2, (6, 7, 8), 2, 2)])
    world.step([Part(i, (9,)) for i in range(3)])
    world.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000))
def test_the_fastest_kernels_keep_the_laws(seed: int) -> None:
    """Law 1 within rounding, law 2 exactly: any program, float64."""
    world = fast_world("small", torch.float64, 1e-10, block_size=4, size=24)
    run_program(world, random_program(random.Random(seed), num_ops=8))
