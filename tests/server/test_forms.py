"""Answers in the form that was asked for, by a random model that would never find it itself."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from answer_forms import PERSON, TOOLS, check, schema
from server_model import MODEL, Running

if TYPE_CHECKING:
    import openai

OPTIONS: dict[str, Any] = {"max_tokens": 300, "temperature": 1}
NO_THINKING = {"enable_thinking": False, **OPTIONS}


def whole(server: Running, **options: Any) -> dict[str, Any]:
    response = server.chat(**options)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice)


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_is_kept(server: Running, seed: int) -> None:
    got = whole(server, response_format=schema(PERSON), seed=seed, **NO_THINKING)
    check(got["message"]["content"])
    assert got["finish_reason"] == "stop" and "reasoning_content" not in got["message"]


def test_reasoning_is_free_and_its_end_can_be_forced(server: Running) -> None:
    """A12, P16: the form begins where the reasoning ends."""
    options = {**OPTIONS, "response_format": schema(PERSON), "reasoning_budget": 9, "seed": 5}
    got = whole(server, **options)
    check(got["message"]["content"])
    assert got["message"]["reasoning_content"]
    free = whole(server, reasoning_budget=4, seed=5, max_tokens=30)
    assert free["message"]["content"] and free["message"]["reasoning_content"]
    none = whole(server, reasoning_budget=0, seed=5, max_tokens=30)
    assert "reasoning_content" not in none["message"]


def test_other_forms(server: Running) -> None:
    got = whole(
        server, response_format={"type": "regex", "regex": r"a/b\n[0-9]{3}/?"}, **NO_THINKING
    )
    assert re.fullmatch("a/b\n[0-9]{3}/?", got["message"]["content"])
    grammar = 'start: "yes" | "no" " " NUMBER\nNUMBER: /[0-9]{2}/'
    got = whole(server, response_format={"type": "grammar", "grammar": grammar}, **NO_THINKING)
    assert re.fullmatch("yes|no [0-9]{2}", got["message"]["content"])
    bias = {str(i): 5 for i in (92, 90)}  # towards `}` and its like, so that it ends
    got = whole(server, response_format={"type": "json_object"}, logit_bias=bias, **NO_THINKING)
    assert got["message"]["content"].startswith("{")


def test_several_answers_have_the_form_each(server: Running) -> None:
    response = server.chat(response_format=schema(PERSON), n=4, seed=1, **NO_THINKING)
    texts = [choice["message"]["content"] for choice in response.json()["choices"]]
    assert len({*texts}) == 4
    for text in texts:
        check(text)


@pytest.mark.parametrize(
    "given",
    [
        schema({"type": "object", "unevaluatedProperties": False}),
        schema({"type": "string", "pattern": "(?=a)"}),
        schema({"type": "string", "format": "no-such-format"}),
        schema({"type": "nothing"}),
        {"type": "json_schema"},
        {"type": "json_object", "regex": "a"},
        {"type": "regex", "regex": "(("},
        {"type": "grammar", "grammar": "begin: no"},
    ],
)
def test_a_form_that_is_not_implemented_is_refused(server: Running, given: dict[str, Any]) -> None:
    response = server.chat(response_format=given)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("response_format")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("required", {"first", "second"}),
        ({"type": "function", "function": {"name": "second"}}, {"second"}),
    ],
)
def test_a_call_can_be_required(
    client: openai.OpenAI, choice: Any, allowed: set[str], stream: bool
) -> None:
    """T9."""
    answer: Any = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "call"}],
        tools=TOOLS,  # type: ignore[arg-type]
        tool_choice=choice,
        parallel_tool_calls=False,
        seed=2,
        max_tokens=100,
        stream=stream,
        extra_body={"enable_thinking": False},
    )
    if stream:
        name, arguments, reason = "", "", None
        for chunk in answer:
            (part,) = chunk.choices
            for call in part.delta.tool_calls or ():
                assert call.index == 0
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            reason = part.finish_reason or reason
            assert not part.delta.content
    else:
        (part,) = answer.choices
        (call,) = part.message.tool_calls
        name, arguments, reason = call.function.name, call.function.arguments, part.finish_reason
        assert part.message.content is None
    assert name in allowed and reason == "tool_calls"
    assert json.loads(arguments) in ({"kind": "river"}, {"kind": "bed"})


def test_a_call_that_is_cut_ends_with_length(server: Running) -> None:
    """T9: and nothing claims that it is complete."""
    options = {"enable_thinking": False, "seed": 2, "tools": TOOLS, "tool_choice": "required"}
    got = whole(server, max_tokens=25, **options)
    assert got["finish_reason"] == "length"


def test_no_tools_are_called_when_none_may_be(server: Running) -> None:
    prompt = {"seed": 2, "max_tokens": 5, "enable_thinking": False}
    without = server.chat(**prompt).json()
    none = server.chat(tools=TOOLS, tool_choice="none", **prompt).json()
    assert none["choices"] == without["choices"]
    assert none["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"]


def test_strict_tools_may_be_left_uncalled(server: Running) -> None:
    got = whole(server, tools=TOOLS, seed=4, max_tokens=20, enable_thinking=False)
    assert got["finish_reason"] in ("length", "stop") and got["message"]["content"]


def test_the_xml_form_is_kept_too(serve: Any) -> None:
    with serve(tool_format="xml") as server:
        got = whole(server, tools=TOOLS, tool_choice="required", seed=3, **NO_THINKING)
        assert got["finish_reason"] == "tool_calls"
        for call in got["message"]["tool_calls"]:
            assert json.loads(call["function"]["arguments"])["kind"] in ("river", "bed")


def test_the_form_does_not_depend_on_company(server: Running) -> None:
    options = {**NO_THINKING, "response_format": schema(PERSON), "seed": 9}
    alone = whole(server, **options)
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(whole(server, **options))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r["message"] for r in results] == [alone["message"]] * 4
