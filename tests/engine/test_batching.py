"""Criterion 5: what a request gets does not depend on who else is there, nor on how it is cut.

On the reference kernels everything is compared with `==`: ids, logprobs, alternatives, texts,
reasons. `Serving.run` also checks that nothing is held afterwards (M8), and its pools hold NaN
wherever nobody may read (M3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import obvious
from mixture import LENGTHS
from serving import PassFailed, Result, Sizes, make_request
from thalweg.config import SamplingParams
from thalweg.ops import extension
from thalweg.ops.registry import KernelSelector
from thalweg.runner.penalties import edit_logits
from thalweg.runner.sampler import LogitsSource, Sampler, draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from mixture import Mixture
    from thalweg.engine.outputs import RequestOutput
    from thalweg.scheduler.plan import StepPlan, StepResult, Token

    Mixtures = Callable[[str], Mixture]

MARGIN = 1e-4
BUDGETS = (1, 2, 3, 7, 16, 63, 64, 65, 100, 300)  # N4
ROOMY = Sizes()
TIGHT = Sizes(num_blocks=24, num_slots=7, max_num_seqs=6, max_num_batched_tokens=65)


def test_the_mixture_holds_what_it_promises(mixture: Mixtures) -> None:
    hybrid = mixture("hybrid")
    assert len(hybrid.requests) == 32
    assert sorted(len(request.prompt) for request in hybrid.requests) == sorted(LENGTHS)
    answers = [answer for result in hybrid.alone.values() for answer in result.answers]
    assert len([a for a in answers if isinstance(a.stop, str)]) >= 3
    assert len([a for a in answers if isinstance(a.stop, int)]) >= 3
    assert len([a for a in answers if a.finish_reason == "length"]) >= 20
    for result in hybrid.alone.values():
        several = {answer.token_ids for answer in result.answers}
        assert len(several) == len(result.answers) or all(len(ids) == 1 for ids in several)


@pytest.mark.parametrize("sizes", [ROOMY, TIGHT], ids=["roomy", "tight"])
def test_each_of_32_requests_gets_what_it_gets_alone(mixture: Mixtures, sizes: Sizes) -> None:
    hybrid = mixture("hybrid")
    assert hybrid.serving(sizes).run(hybrid.requests) == hybrid.alone


@pytest.mark.parametrize("name", ["hybrid-moe", "plain"])
def test_the_same_of_other_models_with_requests_that_come_later(
    mixture: Mixtures, name: str
) -> None:
    other = mixture(name)
    joins = {request.id: i * i % 40 for i, request in enumerate(other.requests)}
    sizes = Sizes(num_blocks=40, num_slots=13, max_num_seqs=12, max_num_batched_tokens=128)
    assert other.serving(sizes).run(other.requests, joins=joins) == other.alone


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_size_of_chunks_changes_nothing(mixture: Mixtures, budget: int) -> None:
    """N4: a prompt of 300 tokens, whose logprobs are wanted too."""
    small = mixture("small-text")
    prompt = [p * p % 500 for p in range(300)]
    params = SamplingParams(seed=3, n=2, max_tokens=3, logprobs=2, prompt_logprobs=1)
    serving = small.serving(Sizes(max_num_batched_tokens=budget))
    request = make_request("long", prompt, params, serving)
    beside = small.requests[:3]
    got = serving.run([beside[0], request, *beside[1:]])
    assert got["long"] == small.run_alone(request)
    assert all(got[other.id] == small.alone[other.id] for other in beside)


def test_memory_for_two_shared_by_six(mixture: Mixtures) -> None:
    """M3: the latest is pushed out again and again, and comes back to a poisoned slot."""
    small = mixture("small-text")
    serving = small.serving(Sizes(num_blocks=13, num_slots=7, max_num_seqs=6))
    params = SamplingParams(seed=1, max_tokens=55, logprobs=1, ignore_eos=True)
    requests = [
        make_request(f"{i}", [(i * 71 + p * 3) % 500 for p in range(33 + i)], params, serving)
        for i in range(6)
    ]
    num_preemptions = 0
    for request in requests:
        serving.engine.add_request(request)
    while serving.engine.has_work:
        before = serving.scheduler.num_waiting
        serving.step()
        num_preemptions += serving.scheduler.num_waiting > before
    serving.assert_empty()
    assert num_preemptions >= 3
    for request in requests:
        assert Result.of(serving.outputs[request.id]) == small.run_alone(request)


def test_requests_that_end_early_leave_the_others_alone(mixture: Mixtures) -> None:
    small = mixture("small-text")
    serving = small.serving(TIGHT)
    for request in small.requests:
        serving.engine.add_request(request)
    aborted: dict[str, RequestOutput] = {}
    for n in (1, 3, 4, 8, 9, 12, 20):
        while serving.num_steps < n:
            serving.step()
        running = [r.id for r in small.requests if r.id not in {*serving.outputs, *aborted}]
        for request_id in (running[0], running[-1]):  # one in the middle of it, one still waiting
            (aborted[request_id],) = serving.engine.cancel(request_id).finished
    while serving.engine.has_work:
        serving.step()
    serving.assert_empty()
    assert {*serving.outputs, *aborted} == {request.id for request in small.requests}
    for request_id, output in serving.outputs.items():
        assert Result.of(output) == small.alone[request_id]
    for request_id, output in aborted.items():
        for answer, whole in zip(output.outputs, small.alone[request_id].answers, strict=True):
            num = len(answer.token_ids)
            assert answer.tokens == whole.tokens[:num]
            if answer.finish_reason == "abort":
                assert num < len(whole.token_ids)
            else:
                assert answer == whole


@pytest.mark.parametrize("sizes", [ROOMY, TIGHT], ids=["roomy", "tight"])
def test_a_pass_that_fails_changes_nothing_but_the_time(mixture: Mixtures, sizes: Sizes) -> None:
    small = mixture("small-text")
    serving = small.serving(sizes)
    serving.runner.failing.fail_at = {1, 2, 5, 6, 7, 11, 15}
    assert serving.run_through_failures(small.requests) == 7
    serving.assert_empty()
    assert {i: Result.of(output) for i, output in serving.outputs.items()} == small.alone


def test_after_a_failed_pass_its_requests_can_be_aborted(mixture: Mixtures) -> None:
    small = mixture("small-text")
    serving = small.serving()
    serving.runner.failing.fail_at = {4}
    for request in small.requests[:8]:
        serving.engine.add_request(request)
    with pytest.raises(PassFailed):
        while serving.engine.has_work:
            serving.step()
    for request in small.requests[:8]:
        if request.id not in serving.outputs:
            serving.engine.cancel(request.id)
    serving.assert_empty()


@pytest.mark.parametrize("name", ["hybrid", "hybrid-moe", "plain"])
def test_compiled_kernels_give_the_same_bits_in_any_company(mixture: Mixtures, name: str) -> None:
    """Not the reference's bits, but always the same ones."""
    if (reason := extension.reason(torch.float32)) is not None:
        pytest.skip(reason)
    model = mixture(name)
    sampler = Sampler(KernelSelector("cpu"), 512, torch.float32)
    alone: dict[str, Result] = {}
    for request in model.requests:
        alone |= model.serving(kernels="cpu", sampler=sampler).run([request])
    for sizes in (ROOMY, TIGHT):
        assert model.serving(sizes, kernels="cpu", sampler=sampler).run(model.requests) == alone


class MarginSampler(Sampler):
    """Remembers how clear each decision was."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(KernelSelector("reference"), vocab_size, torch.float32)
        self.margins: dict[tuple[str, int, int], float] = {}

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        for row in plan.sampling:
            logits = edit_logits(source.rows(row.logits_row, row.logits_row + 1)[0], row)
            scores = obvious.scores(logits.tolist(), row.request.params, draw(row).key)
            place = len(row.history) - len(row.request.prompt)
            self.margins[row.request.id, row.sample_index, place] = obvious.margin(scores)
        return super().__call__(source, plan)


@pytest.mark.parametrize("name", ["hybrid", "hybrid-moe", "plain"])
def test_torch_kernels_agree_where_the_margin_is_clear(mixture: Mixtures, name: str) -> None:
    """Alone and together differ in the last bits there, so an unclear decision may differ; what
    comes after it is another text."""
    model = mixture(name)
    sampler = MarginSampler(512)
    alone: dict[str, Result] = {}
    for request in model.requests:
        alone |= model.serving(kernels="torch", sampler=sampler).run([request])
    num_tokens = sum(len(a.tokens) for result in alone.values() for a in result.answers)
    for sizes in (ROOMY, TIGHT):
        together = model.serving(sizes, kernels="torch").run(model.requests)
        num_compared = 0
        for request_id, one in alone.items():
            other = together[request_id]
            assert_close(one.prompt_tokens, other.prompt_tokens)
            for a, b in zip(one.answers, other.answers, strict=True):
                margins = [sampler.margins[request_id, a.index, i] for i in range(len(a.tokens))]
                clear = next((i for i, m in enumerate(margins) if m <= MARGIN), len(margins))
                assert_close(a.tokens[:clear], b.tokens[:clear])
                if clear == len(margins):
                    assert (a.text, a.finish_reason, a.stop) == (b.text, b.finish_reason, b.stop)
                num_compared += clear
        assert num_compared > 0.9 * num_tokens


def assert_close(one: tuple[Token, ...], other: tuple[Token, ...]) -> None:
    assert [token.id for token in one] == [token.id for token in other]
    for a, b in zip(one, other, strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
        assert [value for _, value in a.top] == pytest.approx([v for _, v in b.top], abs=1e-4)
