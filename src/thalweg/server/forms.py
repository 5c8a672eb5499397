"""The forms that an answer must have, as grammars: reasoning, then calls, or what was asked for."""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import TYPE_CHECKING

from thalweg.errors import RequestError
from thalweg.server.api_errors import invalid
from thalweg.server.call_grammar import call_rules, styled
from thalweg.text.thinking_budget import ThinkingBudget

if TYPE_CHECKING:
    from thalweg.server.chat_tools import Tools
    from thalweg.server.schemas.chat_request import ChatRequest, ResponseFormat
    from thalweg.server.service import Service
    from thalweg.text.thinking_budget import Constraint


class Thinking(Enum):
    NEVER = auto()
    MAYBE = auto()
    """If the model begins with the tag."""
    BEGUN = auto()
    """The prompt ends with the tag."""


_THINKING = {
    Thinking.NEVER: "start: answer",
    Thinking.MAYBE: """start: (THINK_OPEN thought)? answer
THINK_OPEN: "<think>"
""",
    Thinking.BEGUN: "start: thought answer",
}
_THOUGHT = r"""
thought: thought_text GAP
thought_text[lazy]: /(.|\n)*<\/think>/
GAP: /[\n ]{0,4}/
"""


def constraints(
    service: Service, body: ChatRequest, *, tools: Tools | None, thinking: Thinking
) -> tuple[Constraint, ...]:
    """One for each answer; none if it may have any form. Raises `ApiError`."""
    count = body.n or 1
    rules, side = _answer_rules(body, tools)
    forms: list[Constraint | None] = [None] * count
    if rules:
        is_tools = tools is not None and (tools.must_call or body.response_format is None)
        asker = "tools" if is_tools else "response_format"
        if body.ignore_eos or body.min_tokens:
            raise invalid(asker, "ignore_eos and min_tokens would break the form")
        lark = f"%llguidance {{}}\n{_THINKING[thinking]}\n{rules}"
        if thinking is not Thinking.NEVER:
            lark += _THOUGHT
        grammar = json.dumps({"grammars": [{"name": "answer", "lark_grammar": lark}, *side]})
        try:
            forms = [*service.grammars.compile(grammar, max(1, min(count, 128)))]
        except RequestError as error:
            raise invalid(asker, str(error)) from error
    budget = body.reasoning_budget
    if budget is not None:
        if not service.model.thinks:
            raise invalid("reasoning_budget", "this model's chat template knows no reasoning")
        if thinking is not Thinking.NEVER:
            inside = thinking is Thinking.BEGUN
            tokenizer = service.loaded.tokenizer
            forms = [
                ThinkingBudget(tokenizer, budget, begins_inside=inside, inner=form)
                for form in forms
            ]
    return tuple(form for form in forms if form is not None)


def _answer_rules(body: ChatRequest, tools: Tools | None) -> tuple[str, list[dict[str, str]]]:
    """Lark rules for `answer`, and grammars that they name; "" if any text will do."""
    form = body.response_format
    text, side = ("", []) if form is None else _format_rules(form)
    if tools is None:
        return (f"answer: {text}", side) if text else ("", [])
    if not (tools.must_call or tools.is_subset or text or tools.strict):
        return "", []
    calls = call_rules(tools)
    if tools.must_call:
        return f"answer: calls\n{calls}", []
    if text:
        return f"answer: calls | {text}\n{calls}", side
    free = r"""answer: (before calls_rest)* TEXT
before[lazy]: /(.|\n)*<tool_call>/
TEXT: /(.|\n)*/
"""
    return f"{free}{calls}", []


def _format_rules(form: ResponseFormat) -> tuple[str, list[dict[str, str]]]:
    wanted = {"json_schema": "json_schema", "regex": "regex", "grammar": "grammar"}.get(form.type)
    for name in ("json_schema", "regex", "grammar"):
        if (getattr(form, name) is not None) != (name == wanted):
            is_missing = "is missing" if name == wanted else f"does not go with type {form.type}"
            raise invalid(f"response_format.{name}", f"it {is_missing}")
    match form.type:
        case "text":
            return "", []
        case "json_object":
            return f"%json {styled({'type': 'object'})}", []
        case "json_schema":
            assert form.json_schema is not None
            return f"%json {styled(form.json_schema.schema_ or {'type': 'object'})}", []
        case "regex":
            assert form.regex is not None
            return _regex(form.regex), []
        case "grammar":
            assert form.grammar is not None
            return "@given", [{"name": "given", "lark_grammar": form.grammar}]


def _regex(text: str) -> str:
    """As a terminal of a grammar, whose slashes and line breaks are written otherwise."""
    escaped, is_escaped = [], False
    for char in text:
        plain = {"/": "\\/", "\n": "\\n"}.get(char, char)
        escaped.append(char if is_escaped and char == "/" else plain)
        is_escaped = char == "\\" and not is_escaped
    return f"/{''.join(escaped)}/"
