"""The model that comes with the package, behind a server: it calls tools and remembers a talk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from server_model import MODEL, running
from thalweg import LLM, SamplingParams
from thalweg.models import default_model_path

if TYPE_CHECKING:
    from collections.abc import Iterator

GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 64}
BLOCK = 16
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
    for name, description in (
        ("get_weather", "Current weather of a city"),
        ("get_time", "Current time in a city"),
    )
]
RESULTS = {"get_weather": {"temperature": 17, "sky": "sunny"}, "get_time": {"time": "12:47"}}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(default_model_path(), memory=512 << 20) as llm:
        yield llm


@pytest.fixture(scope="module")
def library() -> Iterator[LLM]:
    with LLM(default_model_path(), memory=512 << 20) as llm:
        yield llm


@pytest.fixture
def client(llm: LLM) -> Iterator[openai.OpenAI]:
    with running(llm) as server:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=600)


def loop(client: openai.OpenAI, question: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    """An agent: the conversation at its end, and the calls on the way."""
    messages: list[Any] = [{"role": "user", "content": question}]
    called: list[tuple[str, Any]] = []
    while True:
        answer = client.chat.completions.create(messages=messages, tools=TOOLS, **GREEDY)
        choice = answer.choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        if choice.finish_reason != "tool_calls":
            return messages, called
        for call in choice.message.tool_calls or ():
            assert call.type == "function"
            called.append((call.function.name, json.loads(call.function.arguments)))
            result = json.dumps(RESULTS[call.function.name])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert len(called) < 5


@pytest.mark.parametrize(
    ("question", "name", "city", "wanted"),
    [
        ("What is the weather in Oslo?", "get_weather", "Oslo", ("17", "sunny", "Oslo")),
        ("What time is it in Paris?", "get_time", "Paris", ("12:47", "Paris")),
    ],
)
def test_an_agent_calls_a_tool_and_answers_with_its_result(
    client: openai.OpenAI, question: str, name: str, city: str, wanted: tuple[str, ...]
) -> None:
    messages, called = loop(client, question)
    assert called == [(name, {"city": city})]
    for text in wanted:
        assert text in messages[-1]["content"]


def test_calls_are_the_same_streamed_and_whole(client: openai.OpenAI) -> None:
    question: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    whole = client.chat.completions.create(messages=question, tools=TOOLS, **GREEDY).choices[0]
    name, arguments, reason = "", "", None
    stream = client.chat.completions.create(messages=question, tools=TOOLS, stream=True, **GREEDY)
    for chunk in stream:
        (choice,) = chunk.choices
        assert not choice.delta.content
        for call in choice.delta.tool_calls or ():
            assert call.index == 0 and call.function is not None
            name += call.function.name or ""
            arguments += call.function.arguments or ""
        reason = choice.finish_reason or reason
    assert whole.message.tool_calls is not None
    (called,) = whole.message.tool_calls
    assert called.type == "function"
    assert (name, arguments) == (called.function.name, called.function.arguments)
    assert reason == whole.finish_reason == "tool_calls"


@pytest.mark.parametrize("thinks", [False, True])
def test_twenty_turns_compute_what_is_new(
    client: openai.OpenAI, library: LLM, thinks: bool
) -> None:
    """T2: also where reasoning is left out of earlier turns: then the answer is computed again."""
    messages: list[Any] = []
    extra: dict[str, Any] = {"enable_thinking": thinks}
    known: list[int] = []
    for turn in range(20):
        messages.append({"role": "user", "content": f"Remember {turn}. Hello!"})
        answer = client.chat.completions.create(messages=messages, extra_body=extra, **GREEDY)
        prompt = library.render(messages, **extra).token_ids
        usage = answer.usage
        assert usage is not None and usage.prompt_tokens_details is not None
        assert usage.prompt_tokens == len(prompt)
        common = next(
            (i for i, (a, b) in enumerate(zip(known, prompt, strict=False)) if a != b),
            min(len(known), len(prompt)),
        )
        cached = usage.prompt_tokens_details.cached_tokens
        assert cached is not None and cached >= common - BLOCK, turn
        content = answer.choices[0].message.content or ""
        if turn in (0, 9, 19):
            params = SamplingParams(temperature=0, max_tokens=64)
            (output,) = library.chat(messages, params, **extra)
            assert output.text.rpartition("</think>")[2].strip() == content.strip() or thinks
        messages.append({"role": "assistant", "content": content})
        end = library.tokenizer.encode_fragment(content)
        known = prompt if thinks else prompt + end
