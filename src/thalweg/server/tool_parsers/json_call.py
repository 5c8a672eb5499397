"""`{"name": "f", "arguments": {...}}`: the form of Hermes, Qwen2.5 and Qwen3."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from thalweg.server.tool_parsers.call_reader import Malformed, expect, skip_space

if TYPE_CHECKING:
    from collections.abc import Callable

    from thalweg.server.tool_parsers.call_reader import CallSink, Characters


def read_json_call(sink: CallSink) -> Characters[None]:
    """Arguments are passed on as the model writes them; those it wrote as a string are unpacked."""
    yield from expect("{")
    has_arguments = False
    char = yield from skip_space()
    while char != "}":
        key = yield from _string(char)
        yield from expect(":")
        first = yield from skip_space()
        if key in ("arguments", "parameters") and first == "{":
            char = yield from _value(first, sink.argue)
            has_arguments = True
        else:
            raw: list[str] = []
            char = yield from _value(first, raw.append)
            value = _parsed("".join(raw))
            if key == "name":
                sink.named(value)
            elif key in ("arguments", "parameters") and value is not None:
                sink.argue(_unpacked(value))
                has_arguments = True
        if char == ",":
            char = yield from skip_space()
        elif char != "}":
            raise Malformed
    if sink.name is None:
        raise Malformed
    if not has_arguments:
        sink.argue("{}")


def _string(first: str) -> Characters[str]:
    if first != '"':
        raise Malformed
    raw = [first]
    yield from _string_rest(raw.append)
    value = _parsed("".join(raw))
    assert isinstance(value, str)
    return value


def _value(first: str, emit: Callable[[str], None]) -> Characters[str]:
    """Pass on the characters of a value. -> the first one after it that is no white space"""
    if first == '"':
        emit(first)
        yield from _string_rest(emit)
        return (yield from skip_space())
    if first in "{[":
        yield from _nested(first, emit)
        return (yield from skip_space())
    char = first
    while char not in ",}" and not char.isspace():
        if char in '{["<':
            raise Malformed
        emit(char)
        char = yield
    return char if char in ",}" else (yield from skip_space())


def _string_rest(emit: Callable[[str], None]) -> Characters[None]:
    while True:
        char = yield
        emit(char)
        if char == '"':
            return
        if char == "\\":
            emit((yield))


def _nested(first: str, emit: Callable[[str], None]) -> Characters[None]:
    emit(first)
    open_ends = ["}" if first == "{" else "]"]
    while open_ends:
        char = yield
        if char == "<":  # the closing tag of a call that is not finished
            raise Malformed
        emit(char)
        if char == '"':
            yield from _string_rest(emit)
        elif char in "{[":
            open_ends.append("}" if char == "{" else "]")
        elif char in "}]" and char != open_ends.pop():
            raise Malformed


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        raise Malformed from None


def _unpacked(value: object) -> str:
    if not isinstance(value, str) or not isinstance(_parsed(value), dict):
        raise Malformed
    return value
