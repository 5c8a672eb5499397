"""Tools in a conversation by hand: the model calls them, and who types says what they gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.cli.usage_error import UsageError
from thalweg.server.tags import CALL_OPEN
from thalweg.server.tool_parsers import CallParser, ToolFormat, call_parser, tool_format_of
from thalweg.text.template_features import TemplateFeatures

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.engine.loading import LoadedEngine


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str
    """JSON text."""

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclass(frozen=True, slots=True)
class Tools:
    """What a model may call, and in which form it does."""

    schemas: tuple[dict[str, Any], ...]
    """As in the OpenAI chat API."""
    form: ToolFormat

    def parser(self) -> CallParser:
        functions = [schema["function"] for schema in self.schemas]
        return call_parser(self.form, {f["name"]: f.get("parameters", {}) for f in functions})


def read_tools(path: Path, loaded: LoadedEngine) -> Tools:
    """A JSON list of tools in OpenAI's form. Raises `UsageError`."""
    template = loaded.template
    form = None if template is None else tool_format_of(template.source)
    if template is None or form is None or not TemplateFeatures.of(template).tools:
        raise UsageError("--tools: this model's chat template knows no tools of a form known here")
    tag = loaded.tokenizer.token_to_id(CALL_OPEN)
    if tag is not None and not loaded.tokenizer.decode([tag]):
        raise UsageError(f"--tools: this tokenizer hides {CALL_OPEN} from the text of an answer")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--tools {path} cannot be read: {error}") from error
    if not isinstance(found, list) or not found or not all(map(_is_tool, found)):
        raise UsageError(
            f"--tools {path}: not a list of objects such as "
            '{"type": "function", "function": {"name": ..., "parameters": {...}}}'
        )
    return Tools(tuple(found), form)


def _is_tool(value: object) -> bool:
    function = value.get("function") if isinstance(value, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("parameters", {}), dict)
    )
