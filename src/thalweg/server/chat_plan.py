"""From the body of a chat request to a prompt, and how its answers are to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.server.answer_parser import AnswerParser
from thalweg.server.api_errors import ApiError, invalid
from thalweg.server.chat_choice import ChatChoice
from thalweg.server.chat_tools import chat_tools
from thalweg.server.forms import Thinking, constraints
from thalweg.server.reasoning import ReasoningSplitter, num_reasoning_tokens
from thalweg.server.service import Settings
from thalweg.server.tags import CALL_CLOSE, CALL_OPEN, THINK_CLOSE, THINK_OPEN, tag_ids
from thalweg.text import encode_chat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.admission import Admitted
    from thalweg.server.chat_tools import Tools
    from thalweg.server.schemas.chat_request import ChatRequest
    from thalweg.server.service import Service
    from thalweg.text import ChatPrompt, Tokenizer

RESERVED = ("messages", "tools", "add_generation_prompt", "documents", "enable_thinking")


@dataclass(frozen=True, slots=True, eq=False)
class ChatPlan:
    admitted: Admitted
    tokenizer: Tokenizer
    thinks: bool
    begins_inside: bool
    tools: Tools | None

    def num_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Of an answer's."""
        return num_reasoning_tokens(self.tokenizer, token_ids, begins_inside=self.begins_inside)

    def choice(self) -> ChatChoice:
        """A fresh one, for one of the answers."""
        reasoning = ReasoningSplitter(begins_inside=self.begins_inside) if self.thinks else None
        calls = None if self.tools is None else self.tools.parser()
        return ChatChoice(AnswerParser(reasoning, calls), self.admitted.request.stop_ids)


def plan_chat(service: Service, body: ChatRequest, call_id: str) -> ChatPlan:
    """Takes a while for a long conversation or a large schema. Raises `ApiError` and
    `RequestError`."""
    service.check_model(body.model)
    tools = chat_tools(service, body)
    prompt = _prompt(service, body, offered=tools is not None)
    thinking = _thinking(service, prompt.text)
    tags = [*((THINK_OPEN, THINK_CLOSE) if service.model.thinks else ())]
    if tools is not None:
        tags += [CALL_OPEN, CALL_CLOSE]
    settings = Settings(
        field="messages",
        params=body.sampling(max_tokens=_max_tokens(body), logprobs=_logprobs(body)),
        options=body.options(service.config),
        kept_special=tag_ids(service.loaded.tokenizer, tags),
        constraints=constraints(service, body, tools=tools, thinking=thinking),
    )
    return ChatPlan(
        service.admit(call_id, prompt, settings),
        service.loaded.tokenizer,
        thinks=service.model.thinks,
        begins_inside=thinking is Thinking.BEGUN,
        tools=tools,
    )


def _thinking(service: Service, prompt: str) -> Thinking:
    """What the prompt's end says of it."""
    if not service.model.thinks or prompt.rstrip().endswith(THINK_CLOSE):
        return Thinking.NEVER
    return Thinking.BEGUN if prompt.rstrip().endswith(THINK_OPEN) else Thinking.MAYBE


def _prompt(service: Service, body: ChatRequest, *, offered: bool) -> ChatPrompt:
    if service.loaded.template is None:
        raise ApiError(400, "this model has no chat template: use /v1/completions", "model")
    messages = [message.model_dump(exclude_none=True) for message in body.messages]
    tools = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    return encode_chat(
        service.loaded.tokenizer,
        service.loaded.template,
        messages,
        tools=tools if offered else None,
        **_template_options(service, body),
    )


def _template_options(service: Service, body: ChatRequest) -> dict[str, Any]:
    options = dict(body.chat_template_kwargs or {})
    thinking = options.pop("enable_thinking", None)
    if thinking is not None and not isinstance(thinking, bool):
        raise invalid("chat_template_kwargs", "enable_thinking is true or false")
    if body.enable_thinking is not None:
        thinking = body.enable_thinking
    features = service.model.features
    assert features is not None
    if body.reasoning_effort == "none" and service.model.thinks:
        thinking = False
    for name in options:
        if name in RESERVED or name not in features.variables:
            raise invalid("chat_template_kwargs", f"the chat template has no variable {name!r:.80}")
    if thinking is None:
        return options
    if not features.enable_thinking:
        raise invalid("enable_thinking", "this model's chat template cannot turn it on or off")
    return options | {"enable_thinking": thinking}


def _max_tokens(body: ChatRequest) -> int | None:
    given = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(given) > 1:
        raise invalid("max_completion_tokens", "max_tokens is another number")
    return given.pop() if given else None


def _logprobs(body: ChatRequest) -> int | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", "logprobs is not true")
    return (body.top_logprobs or 0) if body.logprobs else None
