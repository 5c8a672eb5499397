"""Scores and draws through a whole engine, on the reference kernels: all comparisons are `==`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

import obvious
from harness import SMALL, TH, tiny
from serving import Result, Serving, Sizes, make_request
from thalweg.config import SamplingParams
from thalweg.ops.registry import KernelSelector
from thalweg.ops.sampling import draw_key
from thalweg.runner.sampler import LogitsSource, Sampler
from thalweg.scheduler.plan import ScoringRow, StepPlan, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from thalweg.config import ModelConfig
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

SMALL_TEXT = replace(SMALL, vocab_size=512)


@pytest.fixture
def make(small_tokenizer: Tokenizer) -> Callable[..., Serving]:
    def make(sizes: Sizes | None = None, config: ModelConfig = SMALL_TEXT) -> Serving:
        return Serving(tiny(config), small_tokenizer, sizes)

    return make


def prompt_of(length: int, salt: int = 0) -> list[int]:
    return [(salt * 101 + p * p * 7 + p) % 500 for p in range(length)]


def run(serving: Serving, prompt: Sequence[int], **options: object) -> Result:
    request = make_request("r", prompt, SamplingParams(**options), serving)  # type: ignore[arg-type]
    return serving.run([request])["r"]


class ForcingSampler(Sampler):
    """Scores a given text's next token and draws it, whatever the logits say."""

    def __init__(self, text: Sequence[int]) -> None:
        super().__init__(KernelSelector("reference"), 512, torch.float32)
        self.text = text

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        owner = plan.rows[0].sample
        scoring = tuple(
            ScoringRow(owner, row.logits_row, self.text[len(row.history)]) for row in plan.sampling
        )
        result = super().__call__(source, replace(plan, sampling=(), scoring=scoring))
        return StepResult(result.scored, ())


@pytest.mark.parametrize("config", [SMALL_TEXT, TH], ids=["small", "hybrid"])
def test_scoring_a_text_equals_being_forced_to_write_it(
    make: Callable[..., Serving], small_tokenizer: Tokenizer, config: ModelConfig
) -> None:
    """N12: 256 tokens in one chunk, and in 255 single steps."""
    text = prompt_of(256)
    options = {"temperature": 0, "prompt_logprobs": 2, "ignore_eos": True}
    scored = run(make(config=config), text, max_tokens=1, **options).prompt_tokens
    assert [token.id for token in scored] == text[1:]
    forced = Serving(tiny(config), small_tokenizer, sampler=ForcingSampler(text))
    written = run(forced, text[:1], max_tokens=255, **options).answers[0].tokens
    assert written == scored


def test_decoding_step_by_step_gives_the_logprobs_of_scoring(make: Callable[..., Serving]) -> None:
    """The same for a greedy answer, which is decoded in one sequence: 100 single steps."""
    prompt = prompt_of(21)
    answer = run(
        make(), prompt, temperature=0, max_tokens=100, logprobs=3, ignore_eos=True
    ).answers[0]
    text = [*prompt, *answer.token_ids]
    scored = run(make(), text, temperature=0, max_tokens=1, prompt_logprobs=3)
    assert scored.prompt_tokens[len(prompt) - 1 :] == answer.tokens


def test_greedy_tokens_are_the_first_of_their_alternatives(make: Callable[..., Serving]) -> None:
    result = run(make(), prompt_of(9), temperature=0, max_tokens=20, logprobs=5, ignore_eos=True)
    for token in result.answers[0].tokens:
        assert token.top[0] == (token.id, token.logprob)
        assert len(token.top) == 5
        values = [value for _, value in token.top]
        assert values == sorted(values, reverse=True)
        assert all(value < 0 for value in values)


def test_logprobs_are_those_of_the_unmodified_logits(make: Callable[..., Serving]) -> None:
    plain = run(make(), prompt_of(9), temperature=0, max_tokens=1, logprobs=100)
    values = dict(plain.answers[0].tokens[0].top)
    token = list(values)[7]
    forced = run(
        make(),
        prompt_of(9),
        temperature=0.1,
        top_k=1,
        logit_bias={token: 100.0},
        repetition_penalty=3.0,
        max_tokens=1,
        logprobs=0,
    )
    assert forced.answers[0].tokens[0].id == token
    assert forced.answers[0].tokens[0].logprob == values[token]
    assert forced.answers[0].tokens[0].top == ()


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(30, 4, 3, 17), Sizes(25, 9, 8, 64)])
def test_scores_of_many_chunked_prompts_are_those_alone(
    make: Callable[..., Serving], sizes: Sizes
) -> None:
    """P15 without drafts: eight prompts of mixed length, together and in pieces."""
    serving = make(sizes)
    params = SamplingParams(seed=4, max_tokens=4, logprobs=1, prompt_logprobs=2, n=2)
    lengths = (1, 2, 16, 17, 50, 64, 65, 130)
    requests = [
        make_request(str(i), prompt_of(length, i), params, serving)
        for i, length in enumerate(lengths)
    ]
    together = serving.run(requests)
    for request in requests:
        assert together[request.id] == make().run([request])[request.id]
        assert len(together[request.id].prompt_tokens) == len(request.prompt) - 1


def test_the_first_prompt_token_has_no_score(make: Callable[..., Serving]) -> None:
    result = run(make(), [7], max_tokens=1, prompt_logprobs=3)
    assert result.prompt_tokens == ()
    unasked = run(make(), prompt_of(5), max_tokens=1)
    assert unasked.prompt_tokens == ()
    assert unasked.answers[0].tokens[0].logprob is None


def draws(serving: Serving, request: Request) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in serving.run([request])[request.id].answers]


def test_answers_differ_and_a_seed_repeats_them(make: Callable[..., Serving]) -> None:
    def answers(seed: int | None) -> list[tuple[int, ...]]:
        serving = make()
        params = SamplingParams(seed=seed, n=4, max_tokens=8, ignore_eos=True)
        return draws(serving, make_request("r", prompt_of(5), params, serving))

    assert len(set(answers(1))) == 4
    assert answers(1) == answers(1)
    assert set(answers(1)).isdisjoint(answers(2))


def test_the_first_of_n_answers_is_the_only_answer(make: Callable[..., Serving]) -> None:
    one = run(make(), prompt_of(5), seed=9, max_tokens=6).answers
    many = run(make(), prompt_of(5), seed=9, max_tokens=6, n=5).answers
    assert many[:1] == one


def test_an_unseeded_request_reports_the_seed_that_repeats_it(make: Callable[..., Serving]) -> None:
    serving = make()
    params = SamplingParams(n=2, max_tokens=8)
    for name in ("a", "b"):
        serving.engine.add_request(make_request(name, prompt_of(5), params, serving))
    while serving.engine.has_work:
        serving.step()
    first, second = serving.outputs["a"], serving.outputs["b"]
    assert first.seed != second.seed
    assert Result.of(first) != Result.of(second)
    again = run(make(), prompt_of(5), n=2, max_tokens=8, seed=first.seed)
    assert again == Result.of(first)


def test_penalties_are_felt(make: Callable[..., Serving]) -> None:
    """A greedy answer repeats itself; one with a penalty cannot."""
    options = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}
    loop = run(make(), prompt_of(5), **options, logit_bias={3: 100.0}).answers[0]
    assert set(loop.token_ids) == {3}
    kept = run(make(), prompt_of(5), **options, logit_bias={3: 4.0}, frequency_penalty=2.0)
    assert len(set(kept.answers[0].token_ids)) > 5
    assert max(map(kept.answers[0].token_ids.count, kept.answers[0].token_ids)) < 10


class ObviousSampler(Sampler):
    """Draws as ever, and says what should have been drawn from its own books."""

    def __init__(self, requests: Mapping[str, SamplingParams]) -> None:
        super().__init__(KernelSelector("reference"), 512, torch.float32)
        self.prompts: dict[str, list[int]] = {}
        self.params = requests
        self.made: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.num_clear = 0

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        result = super().__call__(source, plan)
        for row, token in zip(plan.sampling, result.sampled, strict=True):
            params = self.params[row.request.id]
            answer = self.made[row.request.id, row.sample_index]
            logits = obvious.edited(
                source.rows(row.logits_row, row.logits_row + 1)[0].tolist(),
                params,
                prompt=self.prompts[row.request.id],
                answer=answer,
                stop_ids=frozenset({322, *params.stop_token_ids}),
            )
            key = draw_key(params.seed or 0, row.sample_index, len(answer))
            scores = obvious.scores(logits, params, key)
            if obvious.margin(scores) > 1e-5:
                assert token.id == obvious.best(scores)
                self.num_clear += 1
            answer.append(token.id)
        return result


def test_every_draw_is_the_obvious_one(small_tokenizer: Tokenizer) -> None:
    """Through the engine: history, seed and place reach the sampler as they should."""
    asked = {
        "a": SamplingParams(seed=11, n=3, max_tokens=9, repetition_penalty=1.5, top_k=50),
        "b": SamplingParams(seed=12, max_tokens=9, presence_penalty=2.0, top_p=0.9, temperature=2),
        "c": SamplingParams(temperature=0, max_tokens=9, frequency_penalty=-2.0, min_tokens=9),
        "d": SamplingParams(seed=13, n=2, max_tokens=9, min_p=0.1, logit_bias={4: 3.0}),
        "e": SamplingParams(seed=14, max_tokens=9, min_tokens=5, stop_token_ids=range(0, 512, 2)),
    }
    sampler = ObviousSampler(asked)
    sizes = Sizes(max_num_batched_tokens=16, max_num_seqs=4)
    serving = Serving(tiny(SMALL_TEXT), small_tokenizer, sizes, sampler=sampler)
    requests = []
    for i, (name, params) in enumerate(asked.items()):
        sampler.prompts[name] = prompt_of(5 + 6 * i, i)
        requests.append(make_request(name, sampler.prompts[name], params, serving))
    serving.run(requests)
    num_tokens = sum(map(len, sampler.made.values()))
    assert num_tokens > 40
    assert sampler.num_clear > 0.95 * num_tokens
