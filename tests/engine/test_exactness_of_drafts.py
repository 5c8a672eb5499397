"""Speculation changes nothing but the speed: tokens and logprobs are those of plain decoding, for
every drafter and rollback, whatever the cache, the company and the preemptions.

Greedy, sampled, penalised and twofold requests are in every run. CI runs a part of the product in
which every two choices meet at least once; `-m slow` runs all of it.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from drafters import KnowsAnswers
from exactness import CONFIGS, each_alone, pairwise, prompt, run, serving
from harness import needs_kernels
from serving import Drafting, Result, Serving, Sizes, make_request
from thalweg.config import Rollback, SamplingParams
from thalweg.scheduler.reuse import ReusePolicy
from thalweg.speculative.lookup import LookupDrafter

if TYPE_CHECKING:
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

pytestmark = needs_kernels

MODELS = (*CONFIGS, "trained")
DRAFTERS = ("lookup 4", "guess 1", "guess 2", "guess 3", "guess 8")
"""Who drafts how many; the guesser is right three times of four, in another way each time."""
KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 0.0, "repetition_penalty": 1.2, "presence_penalty": 0.4, "logit_bias": {7: 2}},
    {"n": 2, "top_k": 40, "frequency_penalty": 0.2},
)
FORCED = 4
each_rollback = pytest.mark.parametrize("rollback", Rollback, ids=lambda each: each.value)


@dataclass(frozen=True, slots=True)
class Cell:
    drafter: str
    rollback: Rollback
    is_warm: bool
    num_mates: int
    is_preempted: bool
    """Everybody is, between draft and verify, every `FORCED` steps."""


PRODUCT = [
    Cell(*each)
    for each in itertools.product(DRAFTERS, Rollback, (False, True), (0, 7), (False, True))
]


@cache
def requests(name: str, tokenizer: Tokenizer) -> tuple[Request, ...]:
    """Two of each kind."""
    rng = random.Random(8)
    shared = rng.choices(range(500), k=100)
    one, made = serving(name, tokenizer), []
    for i in range(2 * len(KINDS)):
        params = SamplingParams(
            **KINDS[i % len(KINDS)], seed=i, max_tokens=rng.randint(6, 20), logprobs=2
        )
        made.append(make_request(f"{i}", prompt(rng, shared), params, one))
    return tuple(made)


@cache
def alone(name: str, tokenizer: Tokenizer) -> dict[str, Result]:
    return each_alone(name, tokenizer, requests(name, tokenizer))


def in_cell(name: str, tokenizer: Tokenizer, cell: Cell) -> Serving:
    kind, num_drafts = cell.drafter.split()
    drafter = LookupDrafter() if kind == "lookup" else None
    known = requests(name, tokenizer), alone(name, tokenizer)
    drafting = Drafting(
        drafter or KnowsAnswers.of(*known, 0.75, varies=True), int(num_drafts), cell.rollback
    )
    sizes = Sizes(120, 60, 16, 64, num_host_blocks=12, num_host_slots=4)
    return serving(name, tokenizer, sizes=sizes, policy=ReusePolicy(), drafting=drafting)


def check(name: str, cell: Cell, tokenizer: Tokenizer) -> None:
    asked = list(requests(name, tokenizer))
    groups = [asked] if cell.num_mates else [[request] for request in asked[: len(KINDS)]]
    one = in_cell(name, tokenizer, cell)
    if cell.is_warm:
        list(run(one, [replace(request, id=f"warm-{request.id}") for request in asked]))

    def disturb(one: Serving) -> None:
        if cell.is_preempted and one.num_steps % FORCED == 0:
            one.speculation.draft(one.scheduler)
            one.preempt_all()

    expected = alone(name, tokenizer)
    for group in groups:
        for request_id, result in run(one, group, disturb):
            assert result == expected[request_id], request_id
    one.assert_empty()
    stats = one.engine.stats()
    assert (one.speculation.counts.num_kept > 0) >= cell.drafter.startswith("guess")
    assert (stats.num_cached_tokens > 0) >= cell.is_warm
    assert (stats.num_preemptions > 0) == cell.is_preempted


def name_of(cell: Cell) -> str:
    parts = (
        cell.drafter.replace(" ", ""),
        cell.rollback.value,
        "warm" if cell.is_warm else "cold",
        "together" if cell.num_mates else "alone",
        "preempted" if cell.is_preempted else "undisturbed",
    )
    return "-".join(parts)


@pytest.mark.parametrize("cell", pairwise(PRODUCT), ids=name_of)
@pytest.mark.parametrize("name", MODELS)
def test_drafts_change_nothing(name: str, cell: Cell, small_tokenizer: Tokenizer) -> None:
    """P4, P6, S1, S2"""
    check(name, cell, small_tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("cell", PRODUCT, ids=name_of)
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_product(name: str, cell: Cell, small_tokenizer: Tokenizer) -> None:
    check(name, cell, small_tokenizer)


@pytest.mark.slow
@each_rollback
def test_long_greedy_answers_to_20_prompts(small_tokenizer: Tokenizer, rollback: Rollback) -> None:
    """P6"""
    plain, rng = serving("hybrid", small_tokenizer), random.Random(6)
    params = SamplingParams(temperature=0, max_tokens=440, ignore_eos=True)
    prompts = [rng.choices(range(500), k=3 * i + 1) for i in range(20)]
    asked = [make_request(f"{i}", each, params, plain) for i, each in enumerate(prompts)]
    expected = plain.run(asked)
    drafter = KnowsAnswers.of(asked, expected, 0.9, varies=True)
    drafting = Drafting(drafter, 4, rollback)
    assert serving("hybrid", small_tokenizer, drafting=drafting).run(asked) == expected


@each_rollback
def test_logprobs_of_prompts_in_chunks(small_tokenizer: Tokenizer, rollback: Rollback) -> None:
    """P15: eight of mixed length at once, drafts of some beside chunks of others."""
    plain, rng = serving("hybrid", small_tokenizer), random.Random(15)
    asked = [
        make_request(
            f"{i}",
            rng.choices(range(500), k=length),
            SamplingParams(seed=i, max_tokens=12, logprobs=2, prompt_logprobs=i % 3),
            plain,
        )
        for i, length in enumerate((1, 5, 16, 17, 40, 64, 99, 130))
    ]
    expected = each_alone("hybrid", small_tokenizer, asked)
    drafting = Drafting(KnowsAnswers.of(asked, expected, 0.8), 3, rollback)
    sizes = Sizes(max_num_batched_tokens=24)
    one = serving("hybrid", small_tokenizer, sizes=sizes, drafting=drafting)
    assert one.run(asked) == expected
    assert one.speculation.counts.num_kept > 0
