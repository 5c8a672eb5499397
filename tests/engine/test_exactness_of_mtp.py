"""The bundled model's own head drafts, and every answer stays what plain decoding gives alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from thalweg import LLM, SamplingParams
from thalweg.config import Rollback
from thalweg.models import default_model_path
from thalweg.ops import extension
from train_tiny.mixture import measured
from train_tiny.tasks import Split, draw

pytestmark = pytest.mark.skipif(
    extension.reason(torch.float32) is not None, reason="the extension is not built"
)

KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 0.0, "repetition_penalty": 1.2, "presence_penalty": 0.4, "logit_bias": {7: 2}},
    {"temperature": 1.0, "n": 2, "top_k": 40, "frequency_penalty": 0.2},
)
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
