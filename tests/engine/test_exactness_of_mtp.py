"""The bundled model's own head drafts, and every answer stays what plain decoding gives alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from harness import needs_kernels
from thalweg import LLM, SamplingParams
from thalweg.config import Rollback
from thalweg.models import default_model_path
from train_tiny.checkpoint import load_weights
from train_tiny.mixture import measured
from train_tiny.model import Rows
from train_tiny.tasks import Split, draw

pytestmark = needs_kernels

KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 0.0, "repetition_penalty": 1.2, "presence_penalty": 0.4, "logit_bias": {7: 2}},
    {"temperature": 1.0, "n": 2, "top_k": 40, "frequency_penalty": 0.2},
)
SHORT = SamplingParams(temperature=0.0, max_tokens=20)
CHUNK = 64
"""Rows of the training's delta rule."""
PROSE = ["the river ran by the old mill and nobody spoke of it " * 6]


def model(**options: Any) -> LLM:
    return LLM(default_model_path(), threads=1, cache_memory=256 << 20, **options)


@pytest.fixture
def ungated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many drafts as there may be, whether they pay or not."""
    monkeypatch.setattr("thalweg.engine.loading.Gate", lambda: None)


@pytest.fixture(scope="module")
def asked() -> list[tuple[list[int], SamplingParams]]:
    """A question of every task, with every kind of sampling in turn."""
    rng = Random(11)
    found = []
    with model() as llm:
        for i, task in enumerate(measured(PROSE)):
            e = draw(task, rng, Split.TEST)
            prompt = llm.render(e.messages, tools=e.tools or None, enable_thinking=e.thinking)
            params = SamplingParams(**KINDS[i % len(KINDS)], seed=i, max_tokens=40, logprobs=2)
            found.append((list(prompt.token_ids), params))
    return found


@pytest.fixture(scope="module")
def alone(asked: list[tuple[list[int], SamplingParams]]) -> list[Any]:
    with model(prefix_cache=False) as llm:
        return [llm.generate([prompt], params)[0].outputs for prompt, params in asked]


@pytest.mark.usefixtures("ungated")
@pytest.mark.parametrize("rollback", Rollback, ids=lambda each: each.value)
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 8])
def test_drafts_of_the_head_change_nothing(
    asked: list[tuple[list[int], SamplingParams]],
    alone: list[Any],
    num_drafts: int,
    rollback: Rollback,
) -> None:
    """P4, P6: all together in small chunks, cold and then from the cache."""
    prompts, params = [each for each, _ in asked], [each for _, each in asked]
    with model(
        speculate="mtp", num_drafts=num_drafts, rollback=rollback.value, max_num_batched_tokens=48
    ) as llm:
        for is_warm in (False, True):
            outputs = llm.generate(prompts, params)
            assert [output.outputs for output in outputs] == alone
            assert any(output.num_cached_tokens > 0 for output in outputs) >= is_warm
        kept = [output.drafts.num_kept for output in outputs]
        assert sum(kept) > 20 * num_drafts**0.5


@pytest.mark.usefixtures("ungated")
def test_three_drafts_gain_more_than_a_token_a_pass(
    asked: list[tuple[list[int], SamplingParams]],
) -> None:
    """Greedy answers to the tasks that the model was trained on."""
    greedy = SamplingParams(temperature=0.0, max_tokens=40)
    with model(speculate="mtp", num_drafts=3) as llm:
        outputs = llm.generate([prompt for prompt, _ in asked], greedy)
    passes = sum(output.drafts.num_passes for output in outputs)
    assert 1 + sum(output.drafts.num_kept for output in outputs) / passes >= 2.0


def first_drafts(num_drafts: int, prompts: list[list[int]]) -> tuple[float, list[list[int]]]:
    """How often the first draft is right, and the answers."""
    with model(speculate="mtp", num_drafts=num_drafts) as llm:
        outputs = llm.generate(prompts, SHORT)
    drafted = sum(output.drafts.drafted[0] for output in outputs)
    kept = sum(output.drafts.kept[0] for output in outputs)
    return kept / drafted, [list(output.outputs[0].token_ids) for output in outputs]


@torch.inference_mode()
def first_drafts_offline(texts: list[tuple[list[int], list[int]]]) -> float:
    """The same of the model in training's own code, which sees whole texts at once."""
    tiny, right, num = load_weights(default_model_path()), 0, 0
    for prompt, answer in texts:
        text = [*prompt, *answer]
        padding = [0] * (-len(text) % CHUNK)
        tokens = torch.tensor([text + padding])
        rows = Rows.from_documents(torch.tensor([[0] * len(text) + [1] * len(padding)]))
        hidden = tiny.model(tokens, rows)
        joined = tiny.mtp.join(tiny.model.embed_tokens(tokens.roll(-1, 1)), hidden)
        drafts = tiny.logits(tiny.mtp(joined, rows)).argmax(-1)[0, len(prompt) - 1 : len(text) - 2]
        right += int((drafts == tokens[0, len(prompt) + 1 : len(text)]).sum())
        num += len(drafts)
    return right / num


@pytest.mark.usefixtures("ungated")
def test_the_head_sees_what_it_was_trained_on() -> None:
    """P10, P11: as many first drafts are right as offline, however many follow them, and after
    long prompts. Only of answers that go on: what is drafted for an end is never kept."""
    rng = Random(3)
    tasks = [task for task in measured(PROSE) if task.name != "passage_1000"]
    examples = [draw(task, rng, Split.TEST) for task in tasks for _ in range(12)]
    with model() as llm:
        rendered = [
            llm.render(e.messages, tools=e.tools or None, enable_thinking=e.thinking)
            for e in examples
        ]
        outputs = llm.generate(rendered, SHORT)
    prompts = [
        list(output.prompt_token_ids)
        for output in outputs
        if output.outputs[0].finish_reason == "length"
    ]
    long = sorted(prompts, key=len)[-20:]
    one, answers = first_drafts(1, long + prompts)
    four, same = first_drafts(4, long + prompts)
    assert same == answers
    assert abs(one - four) <= 0.02
    offline = first_drafts_offline(list(zip(long + prompts, answers, strict=True)))
    assert abs(one - offline) <= 0.02
