"""Speculation changes nothing but the speed: every answer is `==` that of plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from drafters import KnowsAnswers
from serving import Drafting, Result, Sizes, make_request
from thalweg.config import Rollback, SamplingParams
from thalweg.ops.registry import KernelSelector
from thalweg.runner.sampler import Sampler
from thalweg.speculative.lookup import LookupDrafter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mixture import Mixture
    from serving import Serving
    from thalweg.runner.sampler import LogitsSource
    from thalweg.scheduler.plan import StepPlan, StepResult

    Mixtures = Callable[[str], Mixture]

ROOMY = Sizes()
TIGHT = Sizes(num_blocks=24, num_slots=13, max_num_seqs=6, max_num_batched_tokens=65)
NO_SLOTS = Sizes(num_slots=9, max_num_seqs=8, max_num_batched_tokens=33)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("sizes", "num_drafts", "accuracy"),
    [
        (ROOMY, 3, 0.6),
        (TIGHT, 2, 0.6),
        pytest.param(NO_SLOTS, 8, 1.0, marks=slow),
        pytest.param(ROOMY, 1, 0.0, marks=slow),
        pytest.param(ROOMY, 8, 1.0, marks=slow),
        pytest.param(TIGHT, 3, 1.0, marks=slow),
        pytest.param(TIGHT, 8, 0.6, marks=slow),
    ],
)
@pytest.mark.parametrize("rollback", Rollback, ids=lambda rollback: rollback.value)
def test_any_drafts_change_nothing(
    mixture: Mixtures, sizes: Sizes, num_drafts: int, accuracy: float, rollback: Rollback
) -> None:
    """32 requests of every kind: greedy, sampled, penalties, bans, logprobs, n, stop strings."""
    small = mixture("small-text")
    drafter = KnowsAnswers.of(small.requests, small.alone, accuracy, varies=accuracy == 0.6)
    serving = small.serving(sizes, drafting=Drafting(drafter, num_drafts, rollback))
    assert serving.run(small.requests) == small.alone
    counts = serving.speculation.counts
    assert counts.num_drafted > 0
    assert (counts.num_kept > 0) == (accuracy > 0)
    assert len(counts.drafted) <= num_drafts


@slow
@pytest.mark.parametrize("name", ["hybrid", "hybrid-moe", "plain"])
def test_of_other_models_alone_and_together(mixture: Mixtures, name: str) -> None:
    model = mixture(name)
    drafter = KnowsAnswers.of(model.requests, model.alone, 0.7, varies=True)
    assert model.serving(drafting=Drafting(drafter, 4)).run(model.requests) == model.alone
    for request in model.requests[:6]:
        serving = model.serving(drafting=Drafting(drafter, 3))
        assert serving.run([request]) == {request.id: model.alone[request.id]}


@slow
def test_looking_up_changes_nothing(mixture: Mixtures) -> None:
    small = mixture("small-text")
    serving = small.serving(drafting=Drafting(LookupDrafter(), 4))
    assert serving.run(small.requests) == small.alone


def looping(serving: Serving, **options: object) -> Result:
    params = SamplingParams(
        temperature=0,
        logit_bias={3: 100.0},
        ignore_eos=True,
        seed=1,
        **options,  # type: ignore[arg-type]
    )
    return serving.run([make_request("r", [5, 6, 7], params, serving)])["r"]


def test_drafts_that_are_right_save_passes(mixture: Mixtures) -> None:
    small = mixture("small-text")
    plain, guessed = small.serving(), small.serving(drafting=Drafting(LookupDrafter(), 3))
    options = {"max_tokens": 42, "logprobs": 2}
    assert looping(plain, **options) == looping(guessed, **options)
    assert plain.num_steps == 42
    assert guessed.num_steps <= 3 + 42 / 4
    counts = guessed.outputs["r"].drafts
    assert counts.num_kept == 42 - guessed.num_steps
    assert counts.acceptance[0] > 0.9
    assert 3 < counts.mean_length <= 4


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 4])
def test_a_short_prompt_is_no_verify_step(mixture: Mixtures, length: int, num_drafts: int) -> None:
    """P1: alone, and several equal ones together."""
    small = mixture("small-text")
    params = SamplingParams(seed=4, max_tokens=9, logprobs=1)
    prompt = [(7 * p + length) % 500 for p in range(length)]
    plain = small.serving().run([make_request("0", prompt, params, small.serving())])["0"]
    drafting = Drafting(KnowsAnswers([[*prompt, *plain.answers[0].token_ids]]), num_drafts)
    for count in (1, 5):
        serving = small.serving(drafting=drafting)
        requests = [make_request(f"{i}", prompt, params, serving) for i in range(count)]
        assert set(serving.run(requests).values()) == {plain}


def test_ragged_prompts_with_drafts(mixture: Mixtures) -> None:
    """P3: the recipe of the report."""
    hybrid = mixture("hybrid")
    serving = hybrid.serving()
    params = SamplingParams(temperature=0, max_tokens=8, logprobs=1)
    requests = [
        make_request(f"{n}", [(p * p + n) % 500 for p in range(n)], params, serving)
        for n in (120, 64)
    ]
    plain = {r.id: hybrid.run_alone(r) for r in requests}
    for accuracy in (0.0, 1.0):
        drafter = KnowsAnswers.of(requests, plain, accuracy)
        assert hybrid.serving(drafting=Drafting(drafter, 2)).run(requests) == plain


class WatchingSampler(Sampler):
    """Remembers how many tokens and how many drafts each row of a plan had."""

    def __init__(self) -> None:
        super().__init__(KernelSelector("reference"), 512, torch.float32)
        self.plans: list[list[tuple[int, int]]] = []

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        rows = [(len(row.token_ids), row.reservation.num_drafts) for row in plan.rows]
        self.plans.append(rows)
        return super().__call__(source, plan)


def test_no_draft_joins_a_prompt_in_chunks(mixture: Mixtures) -> None:
    """P5: a row with drafts has one other token, and drafts count as tokens of the step."""
    small = mixture("small-text")
    sampler = WatchingSampler()
    drafter = KnowsAnswers.of(small.requests, small.alone)
    sizes = Sizes(max_num_batched_tokens=7, max_num_seqs=3)
    serving = small.serving(sizes, sampler=sampler, drafting=Drafting(drafter, 4))
    requests = [r for r in small.requests if len(r.prompt) < 50][:10]
    assert serving.run(requests) == {r.id: small.alone[r.id] for r in requests}
    assert max(sum(count for count, _ in rows) for rows in sampler.plans) <= 7
    with_drafts = [row for rows in sampler.plans for row in rows if row[1]]
    assert len(with_drafts) > 10
    assert all(count == 1 + num_drafts for count, num_drafts in with_drafts)


def test_a_stop_string_ends_an_answer_within_its_drafts(mixture: Mixtures) -> None:
    """Nothing after it is computed, so the last snapshot lies before it."""
    small = mixture("small-text")
    for request in small.requests:
        if not request.params.stop or request.params.n > 1:
            continue
        drafter = KnowsAnswers(
            [[*request.prompt, *small.alone[request.id].answers[0].token_ids, *[9] * 20]]
        )
        serving = small.serving(drafting=Drafting(drafter, 8))
        assert serving.run([request])[request.id] == small.alone[request.id]


@pytest.mark.parametrize("rollback", Rollback, ids=lambda rollback: rollback.value)
def test_failing_passes_and_drafts(mixture: Mixtures, rollback: Rollback) -> None:
    small = mixture("small-text")
    drafter = KnowsAnswers.of(small.requests, small.alone, 0.8)
    serving = small.serving(TIGHT, drafting=Drafting(drafter, 3, rollback))
    serving.runner.failing.fail_at = {1, 4, 5, 9, 12, 13, 20}
    assert serving.run_through_failures(small.requests) == 7
    serving.assert_empty()
    assert {i: Result.of(output) for i, output in serving.outputs.items()} == small.alone
