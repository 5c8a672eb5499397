"""The sampler against an obvious one, and what its draws depend on."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import obvious
from thalweg.config import SamplingParams
from thalweg.errors import CheckpointError
from thalweg.ops.registry import KernelSelector
from thalweg.ops.sampling import draw_key
from thalweg.runner.penalties import edit_logits
from thalweg.runner.sampler import ROWS_AT_ONCE, LogitsSource, Sampler
from thalweg.scheduler.cost import Load
from thalweg.scheduler.plan import SamplingRow, ScoringRow, StepPlan, StepResult
from thalweg.scheduler.request import Request, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

VOCAB = 50
EOS = frozenset({3, 7})

small = st.floats(-2, 2).map(lambda x: round(x, 2))
params_strategy = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.01, 0.3, 1.0, 2.5, 100.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 7, 49, 50, 51, 10**9]),
    top_p=st.sampled_from([1.0, 1.0, 0.999, 0.9, 0.5, 0.1, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0, 0.01, 0.2, 0.9, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.01, 0.5, 1.2, 100.0]),
    presence_penalty=small,
    frequency_penalty=small,
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=4),
    min_tokens=st.integers(0, 6),
    logprobs=st.sampled_from([None, 0, 1, 5, 100]),
)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)


def request(
    params: SamplingParams,
    *,
    prompt: Sequence[int] = (1,),
    seed: int = 5,
    stop_ids: frozenset[int] = EOS,
) -> Request:
    return Request("r", tuple(prompt), params, seed, 100, stop_ids)


def random_logits(num_rows: int, seed: int, vocab: int = VOCAB) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, vocab, generator=rng) * 3


def sample(
    logits: Tensor, sampling: Sequence[SamplingRow] = (), scoring: Sequence[ScoringRow] = ()
) -> StepResult:
    """The logits stand for hidden states that are projected by the identity."""
    sampler = Sampler(KernelSelector("reference"), logits.shape[-1], logits.dtype)
    plan = StepPlan(
        (), tuple(range(len(logits))), tuple(sampling), tuple(scoring), (), (), (), Load()
    )
    return sampler(LogitsSource(logits, lambda hidden: hidden.clone()), plan)


def row(params: SamplingParams, *, answer: Sequence[int] = (), **options: Any) -> SamplingRow:
    r = request(params, **options)
    return SamplingRow(r, 0, 0, [*r.prompt, *answer])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error(value: float) -> None:
    """No kernel is asked to sort them."""
    logits = random_logits(2, 0)
    logits[1, 7] = value
    with pytest.raises(CheckpointError, match=f"the largest logit is {value}"):
        sample(logits, [row(SamplingParams(top_k=5))])


@settings(max_examples=400, deadline=None)
@given(params_strategy, tokens.filter(bool), tokens, st.integers(0, 2**64 - 1))
@example(SamplingParams(top_p=1e-6, min_p=1.0, min_tokens=5), [3], [], 0)
def test_draws_and_logprobs_are_the_obvious_ones(
    params: SamplingParams, prompt: list[int], answer: list[int], seed: int
) -> None:
    logits = random_logits(1, seed % 1000)
    got = sample(logits, [row(params, prompt=prompt, answer=answer, seed=seed)]).sampled[0]
    plain = logits[0].tolist()
    changed = obvious.edited(plain, params, prompt=prompt, answer=answer, stop_ids=EOS)
    scores = obvious.scores(changed, params, draw_key(seed, 0, len(answer)))
    if obvious.margin(scores) > 1e-5:
        assert got.id == obvious.best(scores)
    else:
        assert scores[got.id] >= max(scores.values()) - 1e-5
    if params.logprobs is None:
        assert got.logprob is None and got.top == ()
        return
    logprobs = obvious.logprobs(plain)
    assert got.logprob == pytest.approx(logprobs[got.id], abs=1e-5)
    order = sorted(range(VOCAB), key=lambda i: (-logprobs[i], i))[: params.logprobs]
    assert [token for token, _ in got.top] == order
    assert [value for _, value in got.top] == pytest.approx([logprobs[i] for i in order], abs=1e-5)


@settings(max_examples=200, deadline=None)
@given(params_strategy, tokens.filter(bool), tokens)
def test_edits_are_the_obvious_ones_and_leave_the_logits(
    params: SamplingParams, prompt: list[int], answer: list[int]
) -> None:
    logits = random_logits(1, 3)[0]
    before = logits.clone()
    got = edit_logits(logits, row(params, prompt=prompt, answer=answer))
    want = obvious.edited(before.tolist(), params, prompt=prompt, answer=answer, stop_ids=EOS)
    assert got.tolist() == pytest.approx(want, rel=1e-5, abs=1e-5)
    assert torch.equal(logits, before)


def test_options_that_do_nothing_change_no_bit() -> None:
    logits = random_logits(1, 4)[0]
    assert edit_logits(logits, row(SamplingParams(), answer=[3, 3, 4])) is logits


def test_greedy_ties_take_the_lowest_id() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [9, 21, 40]] = 2.0
    assert sample(logits, [row(SamplingParams(temperature=0))]).sampled[0].id == 9


def test_equal_logits_at_an_edge_keep_the_lowest_ids() -> None:
    logits = torch.zeros(1, VOCAB)
    for top_k in (1, 3):
        drawn = {
            sample(logits, [row(SamplingParams(top_k=top_k), seed=seed)]).sampled[0].id
            for seed in range(60)
        }
        assert drawn == set(range(top_k))


def test_draws_follow_the_softmax() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -3.0]])
    rows = [row(SamplingParams(), seed=seed) for seed in range(4000)]
    counts = Counter(token.id for token in sample(logits, rows).sampled)
    for token, prob in enumerate(logits[0].softmax(-1).tolist()):
        spread = math.sqrt(prob * (1 - prob) / 4000)
        assert abs(counts[token] / 4000 - prob) < 4 * spread


def test_each_answer_and_each_token_has_its_own_noise() -> None:
    logits = torch.zeros(1, 5000)
    r = request(SamplingParams(n=8))
    answers = [SamplingRow(r, index, 0, r.prompt) for index in range(8)]
    assert len({token.id for token in sample(logits, answers).sampled}) == 8
    places = [SamplingRow(r, 0, 0, [*r.prompt, *[9] * length]) for length in range(8)]
    assert len({token.id for token in sample(logits, places).sampled}) == 8
    seeds = [row(SamplingParams(), seed=seed) for seed in (0, 1, 2**32, 2**63, 2**64 - 1)]
    assert len({token.id for token in sample(logits, seeds).sampled}) == 5


def test_a_token_depends_on_its_own_row_alone() -> None:
    """Rows come in groups; where the groups begin must not matter."""
    count = 2 * ROWS_AT_ONCE + 5
    logits = random_logits(count, 8)
    r = request(SamplingParams(top_p=0.9, temperature=0.8, logprobs=2))
    rows = [SamplingRow(r, i, i, r.prompt) for i in range(count)]
    together = sample(logits, rows).sampled
    for i in (0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, count - 1):
        alone = sample(logits[i : i + 1], [SamplingRow(r, i, 0, r.prompt)]).sampled[0]
        assert alone == together[i]


def test_scored_tokens_come_in_the_plan_s_order_beside_drawn_ones() -> None:
    count = ROWS_AT_ONCE + 3
    logits = random_logits(count, 9)
    r = request(SamplingParams(prompt_logprobs=1, n=2), prompt=range(40))
    owner = Sample(r, 0, list(r.prompt))
    scoring = [ScoringRow(owner, i, (i * 7) % VOCAB) for i in range(count - 1)]
    drawn = [SamplingRow(r, index, count - 1, r.prompt) for index in range(2)]
    result = sample(logits, drawn, scoring)
    assert len(result.sampled) == 2
    assert [token.id for token in result.scored] == [s.token_id for s in scoring]
    for i, token in enumerate(result.scored):
        logprobs = obvious.logprobs(logits[i].tolist())
        assert token.logprob == pytest.approx(logprobs[token.id], abs=1e-5)
        assert token.top[0][0] == max(range(VOCAB), key=logprobs.__getitem__)


@pytest.mark.parametrize("temperature", [1e-45, 1e-40, 1e-30, 1e-5])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.5}, {"min_p": 0.5}, {"top_k": 3}])
def test_tiny_temperatures_are_greedy(temperature: float, options: dict[str, Any]) -> None:
    logits = random_logits(1, 10) * 10
    got = sample(logits, [row(SamplingParams(temperature=temperature, **options))]).sampled[0]
    assert got.id == int(logits[0].argmax())


def test_logits_beyond_what_a_probability_can_be_are_drawn_from() -> None:
    logits = random_logits(1, 11)
    biased = {5: 100.0, 6: -100.0}
    assert sample(logits, [row(SamplingParams(logit_bias=biased))]).sampled[0].id == 5


def test_bans_hold_until_min_tokens() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 3] = 50.0
    params = SamplingParams(temperature=0, min_tokens=2)
    ids = [sample(logits, [row(params, answer=[1] * length)]).sampled[0].id for length in range(4)]
    assert ids == [0, 0, 3, 3]


def test_a_forced_stop_id_yields_to_min_tokens() -> None:
    params = SamplingParams(temperature=0, min_tokens=1, logit_bias={3: 100.0})
    assert sample(torch.zeros(1, VOCAB), [row(params)]).sampled[0].id == 0
