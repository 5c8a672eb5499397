"""One answer's text into reasoning, content and tool calls, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.server.reasoning import Split

if TYPE_CHECKING:
    from thalweg.server.reasoning import ReasoningSplitter
    from thalweg.server.tool_parsers import CallDelta, CallParser


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()


class AnswerParser:
    """The deltas, joined, are the same however the text was cut. None: there is no such part."""

    def __init__(self, reasoning: ReasoningSplitter | None, calls: CallParser | None) -> None:
        self._reasoning = reasoning
        self._calls = calls

    @property
    def is_over(self) -> bool:
        """Nothing that follows counts."""
        return self._calls is not None and self._calls.is_over

    @property
    def ends_in_calls(self) -> bool:
        """There are calls, and all of them are complete."""
        calls = self._calls
        return calls is not None and calls.num_complete > 0 and not calls.has_broken_call

    def push(self, text: str) -> AnswerDelta:
        split = Split(content=text) if self._reasoning is None else self._reasoning.push(text)
        return self._with_calls(split)

    def flush(self) -> AnswerDelta:
        split = Split() if self._reasoning is None else self._reasoning.flush()
        delta = self._with_calls(split)
        if self._calls is None:
            return delta
        return AnswerDelta(
            delta.reasoning, delta.content + self._calls.flush().content, delta.calls
        )

    def _with_calls(self, split: Split) -> AnswerDelta:
        if self._calls is None:
            return AnswerDelta(split.reasoning, split.content)
        found = self._calls.push(split.content)
        return AnswerDelta(split.reasoning, found.content, found.calls)
