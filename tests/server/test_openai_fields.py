"""Every field that OpenAI's own types have works, is a label, or is refused by name.

The lists are those of the installed `openai` package: a field that a newer one adds has no entry
here and fails the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from openai.types import chat, completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from server_model import MODEL, Running

if TYPE_CHECKING:
    import httpx

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "of a river",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
    }
    for name in ("depth", "width")
]
NAMED = {"type": "function", "function": {"name": "depth"}}
CALL = {"id": "1", "type": "function", "function": {"name": "depth", "arguments": "{}"}}
SCHEMA = {"name": "x", "description": "y", "schema": {"type": "null"}, "strict": True}


@dataclass(frozen=True)
class Field:
    """Values that are taken, and values that are refused with an error that names the field."""

    taken: tuple[Any, ...] = ()
    refused: tuple[Any, ...] = ()
    beside: tuple[tuple[str, Any], ...] = ()
    """Other fields that it needs."""


SAMPLING = {
    "frequency_penalty": Field((0.5, None), (3, "high")),
    "presence_penalty": Field((0.5, None), (-3, [])),
    "logit_bias": Field(({"5": -100}, None), ({"river": 1}, {"5": 1000}, {"5": "x"})),
    "n": Field((2, None), (0, 1.5)),
    "seed": Field((7, None), (-1, "x")),
    "stop": Field(("a", ["a", "b"], None), (7, [""])),
    "stream": Field((True, False, None), ("yes",)),
    "stream_options": Field(
        ({"include_usage": True, "include_obfuscation": False}, None),
        ({"include_obfuscation": True}, {"include_other": True}, True),
        beside=(("stream", True),),
    ),
    "temperature": Field((0.5, None), (-1, "hot")),
    "top_p": Field((0.5, None), (0, 2)),
    "user": Field(("somebody", None), (7,)),
    "model": Field((MODEL,), (None, 7)),
    "max_tokens": Field((2, None), (-1, 1.5)),
}
CHAT = SAMPLING | {
    "messages": Field(([{"role": "user", "content": "hi"}],), ([], "hi", None)),
    "max_completion_tokens": Field((2, None), (0, 1.5)),
    "logprobs": Field((True, None), (2,)),
    "top_logprobs": Field((2, None), (500, -1), beside=(("logprobs", True),)),
    "tools": Field(
        (TOOLS, None), ([{"type": "custom", "custom": {"name": "x"}}], [{"type": "function"}])
    ),
    "tool_choice": Field(
        (
            "none",
            "auto",
            "required",
            NAMED,
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}},
        ),
        (
            "any",
            {"type": "custom", "custom": {"name": "x"}},
            {"type": "function", "function": {"name": "speed"}},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        ),
        beside=(("tools", TOOLS),),
    ),
    "parallel_tool_calls": Field((True, False), ("no",), beside=(("tools", TOOLS),)),
    "response_format": Field(
        (
            {"type": "text"},
            {"type": "json_object"},
            {"type": "json_schema", "json_schema": SCHEMA},
        ),
        ({"type": "python"}, {"type": "json_schema"}, "json"),
    ),
    "reasoning_effort": Field(("medium", "none", None), ("high", "low", "minimal", "xhigh", 3)),
    "metadata": Field(({"run": "7"}, None), ({"run": 7}, "7")),
    "safety_identifier": Field(("somebody", None), (7,)),
    "prompt_cache_key": Field(("key", None), (7,)),
    "prompt_cache_options": Field(
        ({"mode": "implicit"}, None), ({"mode": "explicit"}, {"ttl": "30m"})
    ),
    "prompt_cache_retention": Field(("in_memory", None), ("24h",)),
    "store": Field((False, None), (True,)),
    "service_tier": Field(("auto", "default", None), ("flex", "scale", "priority", "fast")),
    "modalities": Field((["text"], None), (["text", "audio"], ["audio"])),
    "verbosity": Field(("medium", None), ("low", "high")),
    "audio": Field((None,), ({"voice": "alloy", "format": "wav"},)),
    "prediction": Field((None,), ({"type": "content", "content": "x"},)),
    "web_search_options": Field((None,), ({},)),
    "functions": Field((None,), ([{"name": "f"}],)),
    "function_call": Field((None,), ("auto", {"name": "f"})),
    "moderation": Field((None,), ({"model": "omni-moderation-latest"},)),
}
COMPLETION = SAMPLING | {
    "prompt": Field(
        ("a", [5, 6], ["a", "b"], [[5], [6]]), (None, [], 7, [5, "a"], [[5], "a"], [None])
    ),
    "best_of": Field((1, None), (3,)),
    "echo": Field((True, None), ("yes",)),
    "logprobs": Field((2, None), (500, True)),
    "suffix": Field((None,), ("b",)),
}
MESSAGES: dict[str, tuple[dict[str, Any], dict[str, Field]]] = {
    "System": ({"role": "system", "content": "be brief"}, {"name": Field(("a",), (7,))}),
    "Developer": ({"role": "developer", "content": "be brief"}, {"name": Field(("a",), (7,))}),
    "User": ({"role": "user", "content": "hi"}, {"name": Field(("a",), (7,))}),
    "Assistant": (
        {"role": "assistant", "content": "hi"},
        {
            "name": Field(("a",), (7,)),
            "audio": Field((None,), ({"id": "x"},)),
            "function_call": Field((None,), ({"name": "f", "arguments": "{}"},)),
            "refusal": Field((None,), ("no",)),
            "tool_calls": Field(
                ([CALL],), ([{"id": "1", "type": "custom", "custom": {"name": "f"}}], ["x"])
            ),
        },
    ),
    "Tool": ({"role": "tool", "content": "7 metres"}, {"tool_call_id": Field(("1",), (7,))}),
}
CONTENT = Field(
    ("hi", [{"type": "text", "text": "hi"}], [{"type": "text", "text": "a"}] * 2),
    (
        7,
        [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}],
        [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}],
        [{"type": "file", "file": {"file_id": "x"}}],
        [{"type": "refusal", "refusal": "no"}],
        [{"type": "text", "text": "hi", "prompt_cache_breakpoint": {}}],
        [{"type": "text"}],
        ["hi"],
    ),
)
CASES = [("/v1/chat/completions", name, field) for name, field in CHAT.items()] + [
    ("/v1/completions", name, field) for name, field in COMPLETION.items()
]


def names(module: Any) -> set[str]:
    kinds = ("CompletionCreateParamsNonStreaming", "CompletionCreateParamsStreaming")
    return {name for kind in kinds for name in get_type_hints(getattr(module, kind))}


def ask(server: Running, path: str, given: dict[str, Any]) -> httpx.Response:
    prompt = (
        {"prompt": "a"} if path == "/v1/completions" else {"messages": CHAT["messages"].taken[0]}
    )
    return server.post(path, **{"model": MODEL, "max_tokens": 1, **prompt, **given})


def refusal(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code in (400, 404), response.text
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error" and error["message"]
    return error


def test_every_field_of_openais_types_has_an_entry() -> None:
    assert names(chat_create_params) == CHAT.keys()
    assert names(completion_create_params) == COMPLETION.keys()
    for kind, (plain, fields) in MESSAGES.items():
        hints = get_type_hints(getattr(chat, f"ChatCompletion{kind}MessageParam"))
        assert hints.keys() == plain.keys() | fields.keys()
    assert get_type_hints(chat.ChatCompletionStreamOptionsParam).keys() == {
        "include_usage",
        "include_obfuscation",
    }
    text = get_type_hints(chat.ChatCompletionContentPartTextParam)
    assert text.keys() == {"type", "text", "prompt_cache_breakpoint"}


@pytest.mark.parametrize(("path", "name", "field"), CASES, ids=lambda value: str(value)[:40])
def test_a_field_is_taken_or_refused_by_name(
    server: Running, path: str, name: str, field: Field
) -> None:
    for value in field.taken:
        limits = {} if name.startswith("max_") else {"max_tokens": 1}
        if name == "max_completion_tokens":
            limits = {"max_tokens": value}
        answer = ask(server, path, {**limits, **dict(field.beside), name: value})
        assert answer.status_code == 200, answer.text
    for value in field.refused:
        given = {**dict(field.beside), name: value}
        if name == "max_completion_tokens":
            given["max_tokens"] = None
        error = refusal(ask(server, path, given))
        assert error["param"].startswith(name) and name in error["message"], error
    assert server.get("/health").is_success


@pytest.mark.parametrize("kind", MESSAGES)
def test_so_is_a_field_of_a_message(server: Running, kind: str) -> None:
    plain, fields = MESSAGES[kind]
    for name, field in {**fields, "content": CONTENT, "role": Field((), ("function", 7))}.items():
        for value in field.taken:
            answer = ask(server, "/v1/chat/completions", {"messages": talk({**plain, name: value})})
            assert answer.status_code == 200, answer.text
        for value in field.refused:
            answer = ask(server, "/v1/chat/completions", {"messages": talk({**plain, name: value})})
            assert (
                refusal(answer)["param"]
                .rpartition("messages[")[2]
                .partition(".")[2]
                .startswith(name)
            ), answer.text


def talk(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation in which the message may stand."""
    user = {"role": "user", "content": "hi"}
    if message["role"] in ("system", "developer"):
        return [message, user]
    if message.get("tool_call_id") or message["role"] == "tool":
        return [user, {"role": "assistant", "tool_calls": [CALL]}, message]
    return [user, message, user] if message["role"] == "assistant" else [message]
