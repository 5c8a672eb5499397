"""One line of `thalweg generate --input`, checked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.config import SamplingParams
from thalweg.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLING_FIELDS = tuple(SamplingParams.__dataclass_fields__)
FIELDS = ("id", "prompt", "messages", "tools", *SAMPLING_FIELDS)
_LISTS = ("stop", "stop_token_ids")
_SWITCHES = ("include_stop", "ignore_eos")
_TOKEN_ID = re.compile("[0-9]{1,10}")  # of its value `SamplingParams` and the model decide


@dataclass(frozen=True, slots=True)
class BatchLine:
    """Exactly one of `prompt` and `messages` is there."""

    prompt: str | list[int] | None
    messages: Sequence[Mapping[str, Any]] | None
    tools: Sequence[Mapping[str, Any]] | None
    params: SamplingParams


def parse_object(text: str) -> dict[str, Any]:
    """The line as JSON; `RequestError` says where it is none."""
    try:
        fields = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RequestError("not a JSON object")
    return fields


def parse_line(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> BatchLine:
    """`defaults` are sampling fields for what the line leaves open."""
    if unknown := [name for name in fields if name not in FIELDS]:
        raise RequestError(f"unknown field {unknown[0]!r}: known are {', '.join(FIELDS)}")
    if not isinstance(fields.get("id", ""), (str, int)):
        raise RequestError(f"id = {fields['id']!r:.80} is not allowed: a string or an integer")
    if ("prompt" in fields) == ("messages" in fields):
        raise RequestError("give either prompt or messages")
    if "tools" in fields and "messages" not in fields:
        raise RequestError("tools go with messages")
    prompt, tools = fields.get("prompt"), fields.get("tools")
    if "prompt" in fields and not isinstance(prompt, (str, list)):
        raise RequestError(f"prompt = {prompt!r:.80} is not allowed: text or a list of token ids")
    if "messages" in fields and fields["messages"] is None:
        raise RequestError("messages = None is not allowed: a list of at least one")
    if tools is not None and not isinstance(tools, list):
        raise RequestError(f"tools = {tools!r:.80} is not allowed: a list of objects")
    own = {name: fields[name] for name in fields if name in SAMPLING_FIELDS}
    params = SamplingParams(**{**defaults, **_checked(own)})
    return BatchLine(prompt, fields.get("messages"), tools, params)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """What JSON can hold in the place of a list, an object or a switch, and what it cannot."""
    for name, value in fields.items():
        if name in _LISTS and not isinstance(value, (list, str if name == "stop" else list)):
            raise RequestError(f"{name} = {value!r:.80} is not allowed: a list")
        if name in _SWITCHES and not isinstance(value, bool):
            raise RequestError(f"{name} = {value!r:.80} is not allowed: true or false")
    if (bias := fields.get("logit_bias")) is not None:
        if not isinstance(bias, dict) or not all(map(_TOKEN_ID.fullmatch, bias)):
            raise RequestError(f"logit_bias = {bias!r:.80} is not allowed: token ids and numbers")
        fields["logit_bias"] = {int(key): value for key, value in bias.items()}
    return fields


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
