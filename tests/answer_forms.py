"""Forms that tests of the server ask for."""

from __future__ import annotations

import json
from typing import Any

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["river", "bed"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
PLACE = {
    "type": "object",
    "properties": {"kind": {"enum": ["bed", "river"]}},
    "required": ["kind"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": PLACE, "strict": True},
    }
    for name in ("first", "second")
]


def schema(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value, "strict": True}}


def check(text: str) -> None:
    value = json.loads(text)
    assert value.keys() == {"name", "age", "kind"}
    assert 0 <= value["age"] <= 150 and value["kind"] in ("river", "bed")
