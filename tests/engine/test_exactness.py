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
import torch

from harness import TH, TH_MOE, Tiny, tiny
from serving import Result, Serving, Sizes, make_request
from thalweg.config import EngineConfig, SamplingParams
from thalweg.models import default_model_path
from thalweg.models.build import build_model
from thalweg.models.loader import open_checkpoint
from thalweg.ops import extension
from thalweg.ops.registry import KernelSelector
from thalweg.runner.sampler import Sampler
from thalweg.scheduler.reuse import ReusePolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

pytestmark = pytest.mark.skipif(
    extension.reason(torch.float32) is not None, reason="the extension is not built"
)

CONFIGS = {"hybrid": TH, "moe": TH_MOE}
MODELS = (*CONFIGS, "trained")
"""The third is the bundled model."""
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


def pairwise(cells: list[Cell]) -> list[Cell]:
    """A few of them in which every two choices that occur together do so once."""

    def pairs(cell: Cell) -> set[tuple[object, ...]]:
        values = (cell.budget, cell.cache, cell.num_mates, cell.forced)
        return set(itertools.combinations(enumerate(values), 2))

    missing = set().union(*map(pairs, cells))
    chosen: list[Cell] = []
    while missing:
        best = max(cells, key=lambda cell: len(pairs(cell) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def prompt(rng: random.Random, shared: list[int]) -> list[int]:
    """Every second one begins with a part of what all share."""
    own = rng.choices(range(500), k=rng.choice([1, 7, 16, 33, 90]))
    return shared[: rng.choice([16, 40, 64, 100])] + own if rng.random() < 0.5 else own


@cache
def requests(num_mates: int, name: str, tokenizer: Tokenizer) -> tuple[Request, ...]:
    """The first three are of the three kinds."""
    rng = random.Random(num_mates)
    shared = rng.choices(range(500), k=100)
    serving = Serving(model(name), tokenizer)
    made = []
    for i in range(len(KINDS) + num_mates):
        params = SamplingParams(
            **KINDS[i % len(KINDS)], seed=i, max_tokens=rng.randint(2, 16), logprobs=2
        )
        made.append(make_request(f"{i}", prompt(rng, shared), params, serving))
    return tuple(made)


@cache
def model(name: str) -> Tiny:
    if name in CONFIGS:
        return tiny(CONFIGS[name], "cpu")
    config = EngineConfig(kernels="cpu", threads=1)
    decoder = build_model(open_checkpoint(default_model_path()), config, max_model_len=512).model
    return Tiny(decoder, decoder.cache_specs, config.block_size)


def serving(name: str, tokenizer: Tokenizer, cell: Cell | None = None) -> Serving:
    made = model(name)
    sampler = Sampler(KernelSelector("cpu"), made.decoder.config.vocab_size, torch.float32)
    if cell is None:
        return Serving(made, tokenizer, sampler=sampler, policy=ReusePolicy(enabled=False))
    # Without a cache whoever finds no room in the host tier begins again, perhaps for ever; with
    # one the tier is for some of those that are preempted.
    num_host_blocks, num_host_slots = (400, 17) if cell.cache is Cache.OFF else (12, 4)
    sizes = Sizes(120, 60, 16, cell.budget, num_host_blocks, num_host_slots)
    policy = ReusePolicy(cell.cache is not Cache.OFF)
    return Serving(made, tokenizer, sizes, sampler=sampler, policy=policy)


@cache
def alone(num_mates: int, name: str, tokenizer: Tokenizer) -> dict[str, Result]:
    """Each in a fresh engine."""
    return {
        request.id: serving(name, tokenizer).run([request])[request.id]
        for request in requests(num_mates, name, tokenizer)
    }


def run(one: Serving, asked: list[Request], forced: int | None) -> Iterator[tuple[str, Result]]:
    rng = random.Random(len(asked))
    joins = {request.id: rng.randint(0, 12) for request in asked}
    first = one.num_steps
    coming = sorted(asked, key=lambda request: joins[request.id])
    while coming or one.engine.has_work:
        while coming and joins[coming[0].id] <= one.num_steps - first:
            one.engine.add_request(coming.pop(0))
        one.step()
        assert one.num_steps - first < 2000, "no progress"
        if forced and one.num_steps % forced == 0:
            one.preempt_all()
    yield from ((request.id, Result.of(one.outputs[request.id])) for request in asked)


def check(name: str, cell: Cell, tokenizer: Tokenizer) -> None:
    asked = list(requests(cell.num_mates, name, tokenizer))
    one = serving(name, tokenizer, cell)
    if cell.cache in (Cache.WARM, Cache.EVICTED):
        warming = [replace(request, id=f"warm-{request.id}") for request in asked]
        list(run(one, warming, None))
    if cell.cache is Cache.EVICTED:
        known = one.scheduler.prefix_cache
        free = one.caches.blocks.num_free, one.caches.slots.num_free
        known.evict(max(0, known.num_blocks // 2 - free[0]), known.num_snapshots // 2)
    expected = alone(cell.num_mates, name, tokenizer)
    for request_id, result in run(one, asked, cell.forced):
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
