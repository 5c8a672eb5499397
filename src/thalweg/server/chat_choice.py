"""One answer of a chat, as a message and as the pieces of one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thalweg.server.logprobs import without_end

if TYPE_CHECKING:
    from thalweg.engine.outputs import Delta, FinishReason, Token
    from thalweg.server.answer_parser import AnswerDelta, AnswerParser


@dataclass(frozen=True, slots=True)
class ChoicePiece:
    delta: dict[str, Any]
    tokens: tuple[Token, ...]
    finish_reason: str | None


@dataclass(slots=True, eq=False)
class ChatChoice:
    """Its pieces and its message say the same."""

    parser: AnswerParser
    stop_ids: frozenset[int]
    finish_reason: str | None = None
    tokens: list[Token] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _content: list[str] = field(default_factory=list)
    _calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Nothing that follows counts."""
        return self.parser.is_over

    def push(self, delta: Delta) -> ChoicePiece:
        pieces = [self.parser.push(delta.text)]
        tokens = delta.tokens
        if delta.finish_reason is not None:
            pieces.append(self.parser.flush())
            self.finish_reason = self._reason(delta.finish_reason)
            by_token = delta.finish_reason == "stop" and tokens[-1].id in self.stop_ids
            tokens = tuple(without_end(tokens, ended_by_token=by_token))
        self.tokens += tokens
        return ChoicePiece(self._take(pieces), tokens, self.finish_reason)

    def message(self) -> dict[str, Any]:
        content = "".join(self._content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not self._calls else None,
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return message

    def _reason(self, reason: FinishReason) -> str:
        """Calls that are complete are what an answer ends in, unless it was cut after them."""
        is_normal = reason == "stop" or (reason == "abort" and self.is_over)
        return "tool_calls" if is_normal and self.parser.ends_in_calls else reason

    def _take(self, pieces: list[AnswerDelta]) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if reasoning := "".join(piece.reasoning for piece in pieces):
            self._reasoning.append(reasoning)
            delta["reasoning_content"] = reasoning
        if content := "".join(piece.content for piece in pieces):
            self._content.append(content)
            delta["content"] = content
        calls: list[dict[str, Any]] = []
        for call in (call for piece in pieces for call in piece.calls):
            if call.name is None:
                self._calls[call.index]["function"]["arguments"] += call.arguments
                calls.append({"index": call.index, "function": {"arguments": call.arguments}})
                continue
            begun = {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
            function = {"name": call.name, "arguments": call.arguments}
            self._calls.append({**begun, "function": function})
            calls.append({"index": call.index, **begun, "function": dict(function)})
        if calls:
            delta["tool_calls"] = calls
        return delta
