from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from thalweg.errors import RequestError
from thalweg.text.messages import MessageForm, normalise_messages

USER = {"role": "user", "content": "hi"}


def one(message: dict[str, Any], form: MessageForm | None = None) -> dict[str, Any]:
    result: dict[str, Any] = normalise_messages([message], form or MessageForm())[0]
    return result


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}


@pytest.mark.parametrize("object_arguments", [False, True])
@pytest.mark.parametrize("null_content", [None, ""])
def test_normalising_twice_changes_nothing(
    object_arguments: bool, null_content: str | None
) -> None:
    form = MessageForm(null_content, object_arguments)
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}]},
        {**call('{"x": "é"}'), "content": None, "reasoning": "because"},
    ]
    once = normalise_messages(messages, form)
    assert normalise_messages(once, form) == once
    assert once[0] == {"role": "system", "content": "a"}
    arguments = once[1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == ({"x": "é"} if object_arguments else '{"x": "é"}')
    assert once[1]["content"] == null_content
    assert once[1]["reasoning_content"] == "because"


def test_text_parts_are_joined_and_nulls_dropped() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts, "name": None}
    assert one(message) == {"role": "user", "content": "ab"}
    assert one({"role": "user", "content": None}) == {"role": "user", "content": ""}


def test_text_of_an_enum_is_its_value_and_callers_keep_their_messages() -> None:
    class Role(StrEnum):
        USER = "user"

    given = {"role": Role.USER, "content": "x"}
    assert one(given) == {"role": "user", "content": "x"}
    assert type(one(given)["role"]) is str
    arguments = {"deep": [1]}
    one(call(arguments))["tool_calls"][0]["function"]["arguments"]["deep"].append(2)
    assert arguments == {"deep": [1]}


@pytest.mark.parametrize("arguments", [None, "", "  ", "{}", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert one(call(arguments))["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "a list of at least one"),
        ("hi", "a list of at least one"),
        (["hi"], r"messages\[0\] is not allowed: an object"),
        ([USER, {"content": "x"}], r"messages\[1\].role = None"),
        ([{"role": 3, "content": "x"}], "role = 3"),
        ([{"role": "user"}], "has no content"),
        ([{"role": "user", "content": 3}], "content is not allowed: text, null or a list"),
        ([{"role": "user", "content": ["x"]}], r"content\[0\] of type 'x'"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            r"content\[0\] of type 'image_url' is not allowed: 'text'",
        ),
        ([{"role": "user", "content": b"x"}], "content is a bytes"),
        ([{"role": "assistant", "tool_calls": {"a": 1}}], "a list of objects"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "a function with a name"),
        ([call('{"a": ')], r"messages\[0\].tool_calls\[0\] \('f'\): arguments .* are not JSON"),
        ([call('{"a": NaN}')], "NaN is not a JSON value"),
        ([call("[" * 100_000)], "are not JSON"),
        ([call("[1]")], "are not allowed: a JSON object"),
        ([call(0)], "are not allowed: a JSON object"),
        ([call({"a": {1}})], "is a set"),
    ],
)
def test_malformed_messages_are_refused_by_name(messages: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        normalise_messages(messages, MessageForm())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
