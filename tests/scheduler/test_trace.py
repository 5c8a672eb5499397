"""What a trace holds is enough to come to every decision again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from replay import replay
from thalweg import LLM, EngineConfig
from thalweg.config import RequestOptions, SamplingParams
from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def run(model: Path, trace: Path, **options: Any) -> None:
    """Company of every kind, in little memory."""
    with LLM(model, trace_file=str(trace), threads=1, **options) as llm:
        engine = llm.loaded.engine
        prompts = [[(i * 7 + p * p) % 300 for p in range(5 + 9 * i)] for i in range(8)]
        params = [SamplingParams(max_tokens=6, seed=i, n=1 + i % 3) for i in range(8)]
        params[3] = replace(params[3], stop=(llm.tokenizer.decode([70]),), logit_bias={70: 100.0})
        params[4] = replace(params[4], prompt_logprobs=0)
        llm.generate(prompts, params)
        llm.generate(prompts, params, request_options=RequestOptions(priority=2, cache_salt="s"))
        for step, _ in enumerate(llm.stream(prompts[7], params[1])):
            if step == 2:
                urgent = RequestOptions(priority=-1)
                next(iter(llm.stream(prompts[6], params[2], request_options=urgent)))
        assert not engine.has_work


@pytest.mark.parametrize("bound", [None, 30.0])
def test_a_trace_replays(tiny_llm_dir: Path, tmp_path: Path, bound: float | None) -> None:
    path = tmp_path / "trace.jsonl"
    run(
        tiny_llm_dir,
        path,
        cache_memory=1 << 20,
        max_num_seqs=4,
        max_num_batched_tokens=32,
        max_inter_token_ms=bound,
    )
    lines = path.read_text().splitlines()
    assert replay(lines) > 50
    events = {line.split('"')[3] for line in lines}
    assert events == {"begin", "add", "plan", "step", "time", "finish", "abort"}


def test_a_trace_with_guesses_replays_the_gate_too(tiny_llm_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    run(tiny_llm_dir, path, cache_memory=2 << 20, max_num_seqs=4, speculate="lookup")
    with LLM(tiny_llm_dir, trace_file=str(path), threads=1, speculate="lookup") as llm:
        params = SamplingParams(temperature=0, max_tokens=90, logit_bias={70: 100.0}, seed=1)
        llm.generate([[1, 2, 3], [4, 5]], params)
    lines = path.read_text().splitlines()
    assert replay(lines) > 20
    asked = [json.loads(line)["rows"] for line in lines if '"ask"' in line]
    assert len({tuple(row[-1] for row in rows) for rows in asked}) > 1  # it did decide
    other = [line.replace(",4,0]]", ",4,3]]") for line in lines]
    with pytest.raises(AssertionError):
        replay(other)


def test_another_decision_is_noticed(tiny_llm_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with LLM(tiny_llm_dir, trace_file=path) as llm:
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=3, seed=0))
    lines = path.read_text().replace('"max_tokens":3', '"max_tokens":2').splitlines()
    with pytest.raises(AssertionError):
        replay(lines)


def test_a_trace_file_is_a_path() -> None:
    with pytest.raises(ConfigError, match="trace_file = 3 is not allowed: a path"):
        EngineConfig(trace_file=3)  # type: ignore[arg-type]
