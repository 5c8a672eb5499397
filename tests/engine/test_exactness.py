"""The promise: on the compiled kernels every request gets, bit for bit, what it gets alone in a
fresh engine, whatever the chunks, the cache, the company and the preemptions.

Three kinds of request (greedy; sampled with penalties; three answers) are in every run, between
mates that come at random. CI runs a part of the product in which every two choices meet at least
once; `-m slow` runs all of it.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from exactness import each_alone, pairwise, prompt, run, serving
from harness import needs_kernels
from serving import Result, Serving, Sizes, make_request
from thalweg.config import SamplingParams
from thalweg.scheduler.reuse import ReusePolicy

if TYPE_CHECKING:
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

pytestmark = needs_kernels

MODELS = ("hybrid", "moe", "trained")
BUDGETS = (16, 64, 512)
MATES = (1, 3, 16)
FORCED = (None, 7)
KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.2, "presence_penalty": 0.4},
    {"n": 3, "top_k": 40},
)


class Cache(Enum):
    OFF = "off"
    COLD = "cold"
    WARM = "warm"
    EVICTED = "warm, then half of it evicted"


@dataclass(frozen=True, slots=True)
class Cell:
    budget: int
    cache: Cache
    num_mates: int
    forced: int | None


PRODUCT = [Cell(*each) for each in itertools.product(BUDGETS, Cache, MATES, FORCED)]


@cache
def requests(num_mates: int, name: str, tokenizer: Tokenizer) -> tuple[Request, ...]:
    """The first three are of the three kinds."""
    rng = random.Random(num_mates)
    shared = rng.choices(range(500), k=100)
    one, made = serving(name, tokenizer), []
    for i in range(len(KINDS) + num_mates):
        params = SamplingParams(
            **KINDS[i % len(KINDS)], seed=i, max_tokens=rng.randint(2, 16), logprobs=2
        )
        made.append(make_request(f"{i}", prompt(rng, shared), params, one))
    return tuple(made)


def in_cell(name: str, tokenizer: Tokenizer, cell: Cell) -> Serving:
    # Without a cache whoever finds no room in the host tier begins again, perhaps for ever; with
    # one the tier is for some of those that are preempted.
    num_host_blocks, num_host_slots = (400, 17) if cell.cache is Cache.OFF else (12, 4)
    sizes = Sizes(120, 60, 16, cell.budget, num_host_blocks, num_host_slots)
    policy = ReusePolicy(cell.cache is not Cache.OFF)
    return serving(name, tokenizer, sizes=sizes, policy=policy)


@cache
def alone(num_mates: int, name: str, tokenizer: Tokenizer) -> dict[str, Result]:
    return each_alone(name, tokenizer, requests(num_mates, name, tokenizer))


def check(name: str, cell: Cell, tokenizer: Tokenizer) -> None:
    asked = list(requests(cell.num_mates, name, tokenizer))
    one = in_cell(name, tokenizer, cell)
    if cell.cache in (Cache.WARM, Cache.EVICTED):
        warming = [replace(request, id=f"warm-{request.id}") for request in asked]
        list(run(one, warming))
    if cell.cache is Cache.EVICTED:
        known = one.scheduler.prefix_cache
        free = one.caches.blocks.num_free, one.caches.slots.num_free
        known.evict(max(0, known.num_blocks // 2 - free[0]), known.num_snapshots // 2)

    def disturb(one: Serving) -> None:
        if cell.forced and one.num_steps % cell.forced == 0:
            one.preempt_all()

    expected = alone(cell.num_mates, name, tokenizer)
    for request_id, result in run(one, asked, disturb):
        assert result == expected[request_id], request_id
    one.assert_empty()
    stats = one.engine.stats()
    assert (stats.num_cached_tokens > 0) >= (cell.cache is Cache.WARM)
    assert (stats.num_preemptions > 0) >= (cell.forced is not None and cell.num_mates > 1)


def name_of(cell: Cell) -> str:
    parts = (cell.budget, cell.cache.name.lower(), cell.num_mates, cell.forced or "undisturbed")
    return "-".join(map(str, parts))


@pytest.mark.parametrize("cell", pairwise(PRODUCT), ids=name_of)
@pytest.mark.parametrize("name", MODELS)
def test_company_cache_chunks_and_preemption(
    name: str, cell: Cell, small_tokenizer: Tokenizer
) -> None:
    """N13, M3"""
    check(name, cell, small_tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("cell", PRODUCT, ids=name_of)
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_product(name: str, cell: Cell, small_tokenizer: Tokenizer) -> None:
    check(name, cell, small_tokenizer)
