"""The formats in which models write tool calls."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from thalweg.server.tool_parsers.calls import CallDelta, CallParser
from thalweg.server.tool_parsers.json_call import read_json_call
from thalweg.server.tool_parsers.xml_call import XmlCallReader

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CallDelta", "CallParser", "ToolFormat", "call_parser", "tool_format_of"]


class ToolFormat(StrEnum):
    JSON = "json"
    """A JSON object in `<tool_call>` tags: Hermes, Qwen2.5, Qwen3."""
    XML = "xml"
    """`<function=...>` and `<parameter=...>` in them: Qwen3-Coder, Qwen3.5."""


def tool_format_of(template: str) -> ToolFormat | None:
    """The format that a chat template teaches; None if it is none of ours."""
    if "<function=" in template and "<tool_call>" in template:
        return ToolFormat.XML
    return ToolFormat.JSON if "<tool_call>" in template else None


def call_parser(
    form: ToolFormat,
    functions: Mapping[str, Mapping[str, Any]],
    *,
    max_calls: int | None = None,
) -> CallParser:
    """`functions`: JSON schema of the parameters by the function's name."""
    reader = XmlCallReader(functions) if form is ToolFormat.XML else read_json_call
    return CallParser(reader, max_calls)
