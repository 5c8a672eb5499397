"""`<function=f><parameter=key>value</parameter></function>`: the form of Qwen3-Coder, Qwen3.5."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from thalweg.server.tags import num_ambiguous
from thalweg.server.tool_parsers.call_reader import Malformed, expect, skip_space, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.server.tool_parsers.call_reader import CallSink, Characters

END = "</parameter>"


class XmlCallReader:
    """Values are text; what the function's schema says is no text is read as JSON.

    `functions`: JSON schema of the parameters by the function's name.
    """

    def __init__(self, functions: Mapping[str, Mapping[str, Any]]) -> None:
        self._functions = functions

    def __call__(self, sink: CallSink) -> Characters[None]:
        yield from expect("<function=")
        name = yield from until(">")
        sink.named(name.strip())
        properties = self._functions.get(name.strip(), {}).get("properties", {})
        sink.argue("{")
        separator = ""
        while (yield from _next_tag()) == "parameter":
            key = (yield from until(">")).strip()
            sink.argue(f"{separator}{_dump(key)}: ")
            separator = ", "
            schema = properties.get(key, {})
            if _is_text(schema):
                yield from _text_value(sink)
            else:
                raw = _trimmed((yield from until(END)))
                sink.argue(_as_json(raw))
        sink.argue("}")


def _next_tag() -> Characters[str]:
    """-> `parameter` where one begins, `` at the function's end"""
    if (yield from skip_space()) != "<":
        raise Malformed
    text = ""
    while "parameter=".startswith(text) or "/function>".startswith(text):
        if text == "parameter=":
            return "parameter"
        if text == "/function>":
            return ""
        text += yield
    raise Malformed


def _text_value(sink: CallSink) -> Characters[None]:
    """Pass a text on as it comes, less one line break at either edge."""
    sink.argue('"')
    held = yield
    if held == "\n":
        held = ""
    while not held.endswith(END):
        # The end is a tag with or without a line break before it.
        keep = max(num_ambiguous(held, END), num_ambiguous(held, f"\n{END}"))
        if keep < len(held):
            sink.argue(_dump(held[: len(held) - keep])[1:-1])
            held = held[len(held) - keep :]
        held += yield
    sink.argue(_dump(held.removesuffix(END).removesuffix("\n"))[1:-1] + '"')


def _is_text(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    if "type" in schema:
        return schema["type"] == "string"
    return all(isinstance(each, str) for each in schema.get("enum", [None]))


def _trimmed(raw: str) -> str:
    return raw.removeprefix("\n").removesuffix("\n")


def _as_json(raw: str) -> str:
    """A value that is no JSON after all is text."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return _dump(raw)
    return raw.strip()


def _dump(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
