"""Tool calls as grammar rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from thalweg.server.tool_parsers import ToolFormat

if TYPE_CHECKING:
    from thalweg.server.chat_tools import Tools


def call_rules(tools: Tools) -> str:
    """Lark rules: `calls`, one or more, and `calls_rest`, one whose opening tag is there."""
    more = "" if tools.max_calls == 1 else r' ("\n" call)*'
    names = " | ".join(f"call_{i}" for i in range(len(tools.functions)))
    rules = [
        f"calls: call{more}",
        'call: "<tool_call>" calls_rest',
        f'calls_rest: "\\n" ({names}) "\\n</tool_call>"',
    ]
    for i, (name, schema) in enumerate(tools.functions.items()):
        kept = schema if tools.must_call or name in tools.strict else {}
        write = _xml_call if tools.form is ToolFormat.XML else _json_call
        rules += write(f"call_{i}", name, {"type": "object", **kept})
    return "\n".join(rules) + "\n"


def _json_call(rule: str, name: str, schema: dict[str, Any]) -> list[str]:
    head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
    return [f'{rule}: {head} %json {styled(schema)} "}}"']


def _xml_call(rule: str, name: str, schema: dict[str, Any]) -> list[str]:
    """Parameters in the schema's order; without `properties` any may be there."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return [
            f'{rule}: {json.dumps(f"<function={name}>" + chr(10))} {rule}_any* "</function>"',
            f'{rule}_any: "<parameter=" /[^>\\n]+/ ">\\n" {rule}_text',
            f"{rule}_text[lazy]: /(.|\\n)*\\n<\\/parameter>\\n/",
        ]
    rules: list[str] = []
    parts: list[str] = []
    for i, (key, value) in enumerate(properties.items()):
        part = f"{rule}_{i}"
        parts.append(part if key in schema.get("required", ()) else f"{part}?")
        head = json.dumps(f"<parameter={key}>\n")
        end = json.dumps("\n</parameter>\n")
        if value.get("type") == "string" and "enum" not in value:
            rules.append(f"{part}: {head} {part}_text")
            rules.append(f"{part}_text[lazy]: /(.|\\n)*\\n<\\/parameter>\\n/")
        elif all(isinstance(each, str) for each in value.get("enum", [None])):
            choices = " | ".join(json.dumps(each) for each in value["enum"])
            rules.append(f"{part}: {head} ({choices}) {end}")
        else:
            rules.append(f"{part}: {head} %json {styled(value)} {end}")
    begin = json.dumps(f"<function={name}>\n")
    return [f'{rule}: {begin} {" ".join(parts)} "</function>"', *rules]


def styled(schema: dict[str, Any]) -> str:
    """A schema whose values are written as Python's json writes them: a model that may put white
    space anywhere can put it there for ever."""
    style = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return json.dumps({**schema, "x-guidance": style})
