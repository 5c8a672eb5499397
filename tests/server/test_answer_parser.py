"""The stream layer without a model: the same text in every chunking gives the same answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.server.answer_parser import AnswerParser
from thalweg.server.reasoning import ReasoningSplitter
from thalweg.server.tool_parsers import ToolFormat, call_parser, tool_format_of

if TYPE_CHECKING:
    from collections.abc import Iterable

FUNCTIONS: dict[str, dict[str, Any]] = {
    "weather": {
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"enum": ["C", "F"]},
            "where": {"type": "object"},
            "maybe": {"type": ["string", "null"]},
        }
    }
}


@dataclass(frozen=True)
class Whole:
    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    ends_in_calls: bool


def parse(
    pieces: Iterable[str], form: ToolFormat | None = ToolFormat.JSON, *, inside: bool = False
) -> Whole:
    calls = None if form is None else call_parser(form, FUNCTIONS)
    parser = AnswerParser(ReasoningSplitter(begins_inside=inside), calls)
    deltas = [*map(parser.push, pieces), parser.flush()]
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for call in (call for delta in deltas for call in delta.calls):
        if call.name is not None:
            assert call.index == len(names)
            names[call.index] = call.name
        arguments[call.index] = arguments.get(call.index, "") + call.arguments
    return Whole(
        "".join(delta.reasoning for delta in deltas),
        "".join(delta.content for delta in deltas),
        tuple((name, arguments[index]) for index, name in names.items()),
        parser.ends_in_calls,
    )


def call(city: str, days: int = 2) -> str:
    arguments = json.dumps({"city": city, "days": days})
    return f'<tool_call>\n{{"name": "weather", "arguments": {arguments}}}\n</tool_call>'


def xml(**parameters: str) -> str:
    body = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in parameters.items())
    return f"<tool_call>\n<function=weather>\n{body}</function>\n</tool_call>"


QUOTED = '"quoted" \\ <b> </param 🙂'
JSON_TEXTS = [
    "",
    "   ",
    "plain text, 3 < 4, <tool_cal, <think",
    "<think>\nfirst this\n\nthen that\n</think>\n\nthe answer </think> is",
    "  <think>cut inside </thi",
    "<think>\n\n</think>\n\nnothing thought",
    f"{call('Paris')}",
    f"Let me look.\n\n{call('Paris')}\n{call('東京 🙂', 3)}\n\n and done ",
    f"<think>\nuse <tool_call> here?\n</think>\n\n{call('a } b')}{call('c')}",
    '<tool_call>{"arguments": {"city": "early"}, "name": "weather"}</tool_call>',
    '<tool_call>{"name": "weather"}</tool_call> text',
    '<tool_call>{"name": "weather", "arguments": null}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"x\\"}"}</tool_call>',
    '<tool_call>{"id": 7, "name": "weather", "arguments": {"a": [1, {"b": "}<"}]}}}</tool_call>!',
    "<tool_call>\nno call\n</tool_call> after",
    '<tool_call>{"name": "weather", "argu',
    '<tool_call>{"name": "weather", "arguments": {"city": "Par',
    f'<tool_call>{{"name": "weather", "arguments": {{"a": </tool_call>{call("next")}',
    '<tool_call>{"nam',
    "<tool_call>",
]
XML_TEXTS = [
    xml(city="Paris", days="2"),
    "Look:\n" + xml(city="two\nlines\n", units="C") + "\n" + xml(days=" 7 ") + " ",
    xml(city=QUOTED, where='{"lat": 1.5}', maybe="null"),
    xml(days="several", maybe="text", city=""),
    xml(),
    "<tool_call><function=weather><parameter=city>Paris</parameter></function></tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=city>\nPar",
    "<tool_call>\n<function=weather>\n</tool_call> text <tool_call>\n<function=weather>\n",
    "<tool_call>\nnothing\n</tool_call>",
]


def chunkings(text: str) -> Iterable[list[str]]:
    """Every fixed size, and every way to cut it in two."""
    for size in range(1, len(text) + 1):
        yield [text[i : i + size] for i in range(0, len(text), size)]
    for cut in range(1, len(text)):
        yield [text[:cut], "", text[cut:]]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("form", "text"),
    [(None, text) for text in JSON_TEXTS]
    + [(ToolFormat.JSON, text) for text in JSON_TEXTS]
    + [(ToolFormat.XML, text) for text in XML_TEXTS],
)
def test_every_chunking_gives_the_same(form: ToolFormat | None, text: str, inside: bool) -> None:
    whole = parse([text], form, inside=inside)
    for pieces in chunkings(text):
        assert parse(pieces, form, inside=inside) == whole, pieces


@given(
    st.lists(st.sampled_from([*JSON_TEXTS, "<", ">", "\n", '"', "}", "</tool_call>", "</think>"])),
    st.lists(st.integers(0, 600)),
    st.booleans(),
)
def test_so_does_every_chunking_of_every_text(
    parts: list[str], cuts: list[int], inside: bool
) -> None:
    text = "".join(parts)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert parse(pieces, inside=inside) == parse([text], inside=inside)


def test_calls_and_the_text_around_them() -> None:
    got = parse([JSON_TEXTS[7]])
    assert got.content == "Let me look.and done "
    assert [(name, json.loads(text)) for name, text in got.calls] == [
        ("weather", {"city": "Paris", "days": 2}),
        ("weather", {"city": "東京 🙂", "days": 3}),
    ]
    assert got.ends_in_calls


def test_reasoning_is_told_apart() -> None:
    got = parse([JSON_TEXTS[3]])
    assert got == Whole("first this\n\nthen that", "the answer </think> is", (), False)
    assert parse(["so\n</think>\n\nyes"], inside=True) == Whole("so", "yes", (), False)


def test_reasoning_that_is_cut_is_no_content() -> None:
    """A11."""
    assert parse(["five tokens of thought "], inside=True) == Whole(
        "five tokens of thought", "", (), False
    )
    assert parse([JSON_TEXTS[4]]).content == ""


def test_tags_in_reasoning_call_nothing() -> None:
    got = parse([JSON_TEXTS[8]])
    assert got.reasoning == "use <tool_call> here?"
    assert [json.loads(text)["city"] for _, text in got.calls] == ["a } b", "c"]


def test_arguments_in_every_form_are_an_object() -> None:
    for place in (9, 12):
        assert "city" in json.loads(parse([JSON_TEXTS[place]]).calls[0][1])
    assert parse([JSON_TEXTS[10]]).calls == parse([JSON_TEXTS[11]]).calls == (("weather", "{}"),)


def test_what_is_no_call_stays_text() -> None:
    assert parse([JSON_TEXTS[14]]).content == "<tool_call>\nno call\n</tool_call> after"
    assert parse([JSON_TEXTS[18]]).content == JSON_TEXTS[18]


def test_a_call_that_is_cut_is_not_claimed_to_be_complete() -> None:
    """T9."""
    for text in JSON_TEXTS[15:18]:
        assert parse([text]).ends_in_calls is False
    broken = parse([JSON_TEXTS[17]])
    assert len(broken.calls) == 2 and json.loads(broken.calls[1][1])["city"] == "next"


def test_values_of_the_xml_form_have_the_types_of_the_schema() -> None:
    first, second = parse([XML_TEXTS[1]], ToolFormat.XML).calls
    assert json.loads(first[1]) == {"city": "two\nlines\n", "units": "C"}
    assert json.loads(second[1]) == {"days": 7}
    ((_, arguments),) = parse([XML_TEXTS[2]], ToolFormat.XML).calls
    assert json.loads(arguments) == {
        "city": QUOTED,
        "where": {"lat": 1.5},
        "maybe": None,
    }
    ((_, arguments),) = parse([XML_TEXTS[3]], ToolFormat.XML).calls
    assert json.loads(arguments) == {"days": "several", "maybe": "text", "city": ""}
    assert parse([XML_TEXTS[4]], ToolFormat.XML).calls == (("weather", "{}"),)


def test_the_format_is_the_templates() -> None:
    assert tool_format_of('<tool_call>\n{"name": ...') is ToolFormat.JSON
    assert tool_format_of("<tool_call>\n<function=...>") is ToolFormat.XML
    assert tool_format_of("[TOOL_CALLS]") is None
