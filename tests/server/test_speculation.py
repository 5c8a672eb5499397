"""Drafts change no answer: not its form, not its calls, not where its reasoning ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from answer_forms import PERSON, TOOLS, check, schema
from server_model import Running, running
from thalweg import LLM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLED = {"temperature": 1, "seed": 5, "max_tokens": 200}
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "max_tokens": 60},
    "sampled": {**SAMPLED, "max_tokens": 60},
    "penalties": {
        "temperature": 0,
        "max_tokens": 60,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
    },
    "logit_bias and min_p": {**SAMPLED, "max_tokens": 60, "logit_bias": {"7": 3}, "min_p": 0.01},
    "top_k and top_p": {**SAMPLED, "max_tokens": 60, "top_k": 20, "top_p": 0.8},
    "logprobs": {"temperature": 0, "max_tokens": 40, "logprobs": True, "top_logprobs": 2},
    "a schema": {**SAMPLED, "enable_thinking": False, "response_format": schema(PERSON)},
    "a schema after reasoning": {
        **SAMPLED,
        "reasoning_budget": 9,
        "response_format": schema(PERSON),
    },
    "calls after reasoning": {
        **SAMPLED,
        "reasoning_budget": 9,
        "tools": TOOLS,
        "tool_choice": "required",
    },
}


@pytest.fixture(scope="module")
def drafting(tiny_llm_dir: Path) -> Iterator[Running]:
    options: dict[str, Any] = {"max_model_len": 512, "speculate": "lookup", "num_drafts": 4}
    with LLM(tiny_llm_dir, kernels="cpu", **options) as llm:
        engine = llm.loaded.engine
        engine._parts = replace(engine._parts, speculation=engine._parts.speculation.ungated())
        with running(llm) as server:
            yield server


def collected(server: Running, body: dict[str, Any]) -> dict[str, Any]:
    """The message of a streamed answer, put together again."""
    message: dict[str, Any] = {"calls": {}}
    for line in server.chat(stream=True, **body).text.splitlines():
        if not line.startswith("data: {"):
            continue
        (choice,) = json.loads(line.removeprefix("data: "))["choices"]
        for name in ("content", "reasoning_content"):
            message[name] = message.get(name, "") + (choice["delta"].get(name) or "")
        for call in choice["delta"].get("tool_calls", ()):
            known = message["calls"].setdefault(call["index"], {"name": "", "arguments": ""})
            for name, text in call["function"].items():
                known[name] += text
        message["finish_reason"] = choice["finish_reason"]
    return message


@pytest.mark.parametrize("name", ASKED)
def test_drafts_change_no_answer(server: Running, drafting: Running, name: str) -> None:
    """A16, P16, T7: whole and streamed."""
    body = ASKED[name]
    without = server.chat(**body).json()["choices"][0]
    for _ in range(2):  # the second time with a warm cache
        with_drafts = drafting.chat(**body).json()["choices"][0]
        for choice in (without, with_drafts):
            for call in choice["message"].get("tool_calls", ()):
                call.pop("id", None)
        assert with_drafts == without
    streamed = collected(drafting, body)
    message = without["message"]
    assert streamed["content"] == (message["content"] or "")
    assert streamed["reasoning_content"] == message.get("reasoning_content", "")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    assert list(streamed["calls"].values()) == calls
    assert streamed["finish_reason"] == without["finish_reason"]
    if "schema" in name:
        check(message["content"])
    if "calls" in name:
        assert calls and all(json.loads(call["arguments"])["kind"] for call in calls)


def test_there_are_drafts(drafting: Running) -> None:
    drafting.chat(temperature=0, max_tokens=150, ignore_eos=True)
    assert drafting.service.recent[-1].drafts.num_drafted > 0
