"""A conversation as callers write it, checked and brought into the one form templates get."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thalweg.errors import RequestError

_ROLE_ALIASES = {"developer": "system"}
_REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class MessageForm:
    """Two things on which templates differ."""

    null_content: str | None = ""
    """What stands for the content of an assistant message that only calls tools."""
    object_arguments: bool = True
    """Tool-call arguments are an object; else the JSON text of it."""


def normalise_messages(messages: Sequence[Mapping[str, Any]], form: MessageForm) -> list[Any]:
    """Fresh plain dicts; what is malformed raises `RequestError` naming it.

    Lists of text parts are joined, keys whose value is None are dropped, `developer` becomes
    `system`, reasoning is known by every name in use, and tool-call arguments given as a JSON
    string or as an object come out the same. The result may be passed in again.
    """
    if not isinstance(messages, (list, tuple)) or not messages:
        raise RequestError(f"messages = {messages!r:.80} is not allowed: a list of at least one")
    return [_message(message, f"messages[{i}]", form) for i, message in enumerate(messages)]


def plain_json(value: Any, where: str) -> Any:
    """A copy made of dict, list, str, int, float, bool and None alone, as templates may see it."""
    try:
        return _plain(value, where)
    except RecursionError:
        raise RequestError(f"{where} is nested too deep") from None


def plain_tools(tools: Any) -> list[Any]:
    """A copy of the tools that go with a conversation; None is none of them."""
    plain = plain_json(tools or [], "tools")
    if not isinstance(plain, list):
        raise RequestError(f"tools = {plain!r:.80} is not allowed: a list of objects")
    for i, tool in enumerate(plain):
        if not isinstance(tool, dict):
            raise RequestError(f"tools[{i}] = {tool!r:.80} is not allowed: an object")
    return plain


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an enum's text rather than its name
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise RequestError(f"{where} is a {type(value).__name__}, which is not allowed: JSON values")


def _message(message: Mapping[str, Any], where: str, form: MessageForm) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} is not allowed: an object with role and content")
    plain = {k: v for k, v in plain_json(message, where).items() if v is not None}
    role = plain.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{where}.role = {role!r:.80} is not allowed: a name such as 'user'")
    plain["role"] = _ROLE_ALIASES.get(role, role)
    if calls := plain.pop("tool_calls", None):
        plain["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls", form)
    if "content" not in message and role != "assistant":
        raise RequestError(f"{where} has no content")
    empty = form.null_content if calls else ""
    plain["content"] = _content(plain["content"], where) if "content" in plain else empty
    if reasoning := next((plain[key] for key in _REASONING if key in plain), None):
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where}.content is not allowed: text, null or a list of text parts")
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else part
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RequestError(f"{where}.content[{i}] of type {kind!r:.40} is not allowed: 'text'")
    return "".join(part["text"] for part in content)


def _tool_calls(calls: Any, where: str, form: MessageForm) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RequestError(f"{where} is not allowed: a list of objects")
    return [_tool_call(call, f"{where}[{i}]", form) for i, call in enumerate(calls)]


def _tool_call(call: dict[str, Any], where: str, form: MessageForm) -> dict[str, Any]:
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where} is not allowed: a function with a name and arguments")
    where = f"{where} ({function['name']!r:.80}): arguments"
    given = _arguments(function.get("arguments"), where)
    text = None if form.object_arguments else json.dumps(given, ensure_ascii=False)
    function = {**function, "arguments": given if text is None else text}
    return {**call, "function": function} if "function" in call else function


def _arguments(arguments: Any, where: str) -> dict[str, Any]:
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            text = f"{where} {arguments!r:.80} are not JSON: {error}"
            raise RequestError(text) from error
    if not isinstance(arguments, dict):
        raise RequestError(f"{where} {arguments!r:.80} are not allowed: a JSON object")
    return arguments


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
