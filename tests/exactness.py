"""Whole engines on the compiled kernels, and what each request gets alone in a fresh one."""

from __future__ import annotations

import itertools
import random
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from harness import PLAIN, TH, TH_MOE, Tiny, tiny
from serving import Result, Serving
from thalweg.config import EngineConfig
from thalweg.models import default_model_path
from thalweg.models.build import build_model
from thalweg.models.loader import open_checkpoint
from thalweg.ops.registry import KernelSelector
from thalweg.runner.sampler import Sampler
from thalweg.scheduler.reuse import ReusePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

C = TypeVar("C")

CONFIGS = {"hybrid": TH, "moe": TH_MOE, "plain": PLAIN}
"""Random models; `trained` is the bundled one."""


@cache
def model(name: str) -> Tiny:
    if name in CONFIGS:
        return tiny(CONFIGS[name], "cpu")
    config = EngineConfig(kernels="cpu", threads=1)
    decoder = build_model(open_checkpoint(default_model_path()), config, max_model_len=512).model
    return Tiny(decoder, decoder.cache_specs, config.block_size)


def serving(name: str, tokenizer: Tokenizer, **options: Any) -> Serving:
    """`options` are those of `Serving`; without any, nothing is cached and nothing is scarce."""
    made = model(name)
    sampler = Sampler(KernelSelector("cpu"), made.decoder.config.vocab_size, torch.float32)
    options = {"policy": ReusePolicy(enabled=False)} | options
    return Serving(made, tokenizer, sampler=sampler, **options)


def each_alone(name: str, tokenizer: Tokenizer, asked: Sequence[Request]) -> dict[str, Result]:
    """Each in a fresh engine."""
    return {each.id: serving(name, tokenizer).run([each])[each.id] for each in asked}


def prompt(rng: random.Random, shared: list[int]) -> list[int]:
    """Every second one begins with a part of what all share."""
    own = rng.choices(range(500), k=rng.choice([1, 7, 16, 33, 90]))
    return shared[: rng.choice([16, 40, 64, 100])] + own if rng.random() < 0.5 else own


def run(
    one: Serving, asked: list[Request], disturb: Callable[[Serving], None] | None = None
) -> Iterator[tuple[str, Result]]:
    """All of them to the end, joining at random; `disturb` comes between any two steps."""
    rng = random.Random(len(asked))
    joins = {request.id: rng.randint(0, 12) for request in asked}
    first = one.num_steps
    coming = sorted(asked, key=lambda request: joins[request.id])
    while coming or one.engine.has_work:
        while coming and joins[coming[0].id] <= one.num_steps - first:
            one.engine.add_request(coming.pop(0))
        one.step()
        assert one.num_steps - first < 2000, "no progress"
        if disturb is not None:
            disturb(one)
    yield from ((request.id, Result.of(one.outputs[request.id])) for request in asked)


def pairwise(cells: Sequence[C]) -> list[C]:
    """A few of them, dataclasses all, in which every two values that occur together do so once."""

    def pairs(cell: C) -> set[tuple[object, ...]]:
        values = [getattr(cell, field.name) for field in fields(cell)]  # type: ignore[arg-type]
        return set(itertools.combinations(enumerate(values), 2))

    missing = set().union(*map(pairs, cells))
    chosen: list[C] = []
    while missing:
        best = max(cells, key=lambda cell: len(pairs(cell) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen
