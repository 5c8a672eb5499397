"""Which tools an answer may call, and whether it must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.server.api_errors import invalid
from thalweg.server.schemas.chat_request import AllowedToolChoice, NamedTool
from thalweg.server.tool_parsers import CallParser, ToolFormat, call_parser

if TYPE_CHECKING:
    from thalweg.server.schemas.chat_request import ChatRequest
    from thalweg.server.service import Service


@dataclass(frozen=True, slots=True)
class Tools:
    """Those that the model may call in this answer."""

    form: ToolFormat
    functions: dict[str, dict[str, Any]]
    """JSON schema of the parameters by name."""
    strict: frozenset[str]
    """Those whose arguments must keep to the schema."""
    max_calls: int | None
    must_call: bool
    is_subset: bool
    """The prompt has others, too, which may not be called."""

    def parser(self) -> CallParser:
        return call_parser(self.form, self.functions, max_calls=self.max_calls)


def chat_tools(service: Service, body: ChatRequest) -> Tools | None:
    """None: there are none to call. Raises `ApiError`."""
    if not body.tools:
        for name in ("tool_choice", "parallel_tool_calls"):
            if getattr(body, name) not in (None, "none"):
                raise invalid(name, "there are no tools")
        return None
    if body.tool_choice == "none":
        return None
    features, form = service.model.features, service.model.tool_format
    if features is None or not features.tools or form is None:
        raise invalid("tools", "this model's chat template knows no tools of a form known here")
    functions = {tool.function.name: tool.function.parameters or {} for tool in body.tools}
    if len(functions) < len(body.tools):
        raise invalid("tools", "two functions have the same name")
    named = isinstance(body.tool_choice, NamedTool)
    match body.tool_choice:
        case NamedTool():
            allowed, must_call = [body.tool_choice], True
        case AllowedToolChoice(allowed_tools=subset):
            allowed, must_call = subset.tools, subset.mode == "required"
        case choice:
            allowed, must_call = [], choice == "required"
    for tool in allowed:
        if tool.function.name not in functions:
            raise invalid("tool_choice", f"there is no function {tool.function.name!r:.80}")
    return Tools(
        form,
        {each.function.name: functions[each.function.name] for each in allowed} or functions,
        strict=frozenset(t.function.name for t in body.tools if t.function.strict),
        max_calls=1 if named or body.parallel_tool_calls is False else None,
        must_call=must_call,
        is_subset=bool(allowed),
    )
