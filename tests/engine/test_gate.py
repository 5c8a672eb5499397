"""The gate at work in an engine, on a clock that goes as the passes' rows say."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from checkpoints import Variant, make_checkpoint
from drafters import KnowsAnswers
from harness import tiny
from mixture import TEXT_MODELS
from serving import Drafting, Result, Serving, make_request
from thalweg import LLM
from thalweg.config import SamplingParams
from thalweg.ops.registry import KernelSelector
from thalweg.runner.sampler import Sampler
from thalweg.speculative.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mixture import Mixture
    from thalweg.engine.outputs import RequestOutput
    from thalweg.runner.sampler import LogitsSource
    from thalweg.scheduler.plan import StepPlan, StepResult

    Mixtures = Callable[[str], Mixture]

NUM_TOKENS = 240


class Clock(Sampler):
    """A second a pass, and a quarter for each draft."""

    def __init__(self) -> None:
        super().__init__(KernelSelector("reference"), 512, torch.float32)
        self.now = 0.0

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        self.now += 1 + 0.25 * sum(row.reservation.num_drafts for row in plan.rows)
        return super().__call__(source, plan)


def answer(small: Mixture, drafting: Drafting | None) -> tuple[Serving, RequestOutput, Clock]:
    clock = Clock()
    serving = Serving(
        tiny(TEXT_MODELS[small.name], "reference"),
        small.tokenizer,
        sampler=clock,
        clock=lambda: clock.now,
        drafting=drafting,
    )
    params = SamplingParams(seed=1, max_tokens=NUM_TOKENS, ignore_eos=True)
    serving.run([make_request("r", [5, 6, 7], params, serving)])
    return serving, serving.outputs["r"], clock


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_p14_wrong_guesses_are_switched_off_and_right_ones_pay(
    mixture: Mixtures, accuracy: float
) -> None:
    small = mixture("small-text")
    _, plain, plain_clock = answer(small, None)
    text = [5, 6, 7, *plain.outputs[0].token_ids]
    drafting = Drafting(KnowsAnswers([text], accuracy), 4, gate=Gate())
    serving, guessed, clock = answer(small, drafting)
    assert Result.of(guessed) == Result.of(plain)
    gate = serving.engine.stats().gate
    if accuracy:
        assert plain_clock.now > 2 * clock.now
        assert gate.num_drafting > 30
    else:
        assert plain_clock.now > 0.97 * clock.now
        assert gate.num_held > 200 and guessed.drafts.num_held > 200
        gaps = guessed.timings.inter_token[0][60:]
        assert len(gaps) > 0.97 * sum(gaps)


def test_every_record_tells_the_same(tiny_llm_dir: Path) -> None:
    with LLM(tiny_llm_dir, cache_memory=4 << 20, threads=1, speculate="lookup") as llm:
        params = SamplingParams(temperature=0, max_tokens=60, logit_bias={70: 100.0})
        outputs = llm.generate([[1, 2, 3], [4, 5, 6, 7]], params)
        stats = llm.loaded.engine.stats()
    counts = [output.drafts for output in outputs]
    assert stats.drafts.num_passes == sum(each.num_passes for each in counts) > 0
    assert stats.drafts.num_drafted == sum(each.num_drafted for each in counts)
    assert stats.drafts.num_kept == sum(each.num_kept for each in counts)
    gate = stats.gate
    assert gate.num_measuring > 0
    assert gate.num_drafting + gate.num_held + gate.num_measuring + gate.num_probing <= 60


def test_auto_says_what_it_is_and_that_it_ends_a_random_head(
    small_tokenizer_dir: Path, tiny_llm_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """P14."""
    caplog.set_level(logging.INFO, "thalweg.engine")
    make_checkpoint(tmp_path, "qwen3_5", Variant(mtp=True))
    shutil.copytree(small_tokenizer_dir, tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    params = SamplingParams(seed=1, max_tokens=200, ignore_eos=True)
    answers = []
    for speculate in ("off", "auto"):
        with LLM(tmp_path, cache_memory=8 << 20, threads=1, speculate=speculate) as llm:
            answers.append(llm.generate([[5, 6, 7]], params)[0])
    assert answers[0].outputs == answers[1].outputs
    assert answers[1].drafts.num_passes > 0 and answers[1].drafts.num_held > 60
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "speculate = auto is mtp: the model has a multi-token-prediction head"
    assert any(text.startswith("speculation is off: ") for text in said[1:])
    caplog.clear()
    with LLM(tiny_llm_dir, cache_memory=8 << 20, threads=1, speculate="auto") as llm:
        assert llm.loaded.shared.built.mtp is None
    assert "auto is lookup: the model has no" in caplog.records[0].getMessage()
