"""A conversation with a model: its history, and what each answer cost."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.cli.chat_tools import Call
from thalweg.errors import RequestError
from thalweg.server.answer_parser import AnswerParser
from thalweg.server.chat_choice import ChatChoice

if TYPE_CHECKING:
    from typing import Any

    from thalweg import LLM, SamplingParams
    from thalweg.cli.chat_tools import Tools
    from thalweg.engine.outputs import Delta, FinishReason
    from thalweg.text import ChatPrompt


@dataclass(slots=True)
class TurnStats:
    """One answer in numbers; times are seconds from the question on."""

    prompt_tokens: int
    """Of the whole conversation up to the answer."""
    answer_tokens: int = 0
    first_token: float = 0.0
    last_token: float = 0.0
    finish_reason: FinishReason = "abort"

    @property
    def tokens_per_second(self) -> float:
        """After the first token, which is the prompt's work; 0 if there was no other."""
        seconds = self.last_token - self.first_token
        return (self.answer_tokens - 1) / seconds if seconds > 0 else 0.0


class Conversation:
    def __init__(
        self, llm: LLM, system: str | None, params: SamplingParams, *, tools: Tools | None = None
    ) -> None:
        self._llm = llm
        self._params = params
        self._tools = tools
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages: list[dict[str, Any]] = list(self._start)
        self.turns: list[TurnStats] = []
        self.calls: list[Call] = []
        """Those of the last answer."""
        self._results: list[dict[str, Any]] = []

    @property
    def waiting(self) -> Call | None:
        """The call whose result has to come next."""
        return self.calls[len(self._results)] if len(self._results) < len(self.calls) else None

    @property
    def max_tokens(self) -> int:
        """What prompt and answer together may have."""
        return self._llm.loaded.limits.max_model_len

    @property
    def context_used(self) -> int:
        return self.turns[-1].prompt_tokens + self.turns[-1].answer_tokens if self.turns else 0

    def ask(self, text: str) -> Generator[str]:
        """The answer to a message, piece by piece, without the calls in it. While calls wait,
        `text` is the result of the first of them, and the last result is what is answered.

        Closing it early keeps what was said so far. Raises `RequestError`, before anything is
        generated, if the conversation does not fit the context with this or the template refuses
        it; it is then as it was before.
        """
        if (call := self.waiting) is None:
            return self._answer([{"role": "user", "content": text}])
        result = {"role": "tool", "name": call.name, "content": text}
        if len(self._results) + 1 < len(self.calls):
            self._results.append(result)
            return _nothing()
        return self._answer([*self._results, result])

    def _answer(self, news: list[dict[str, Any]]) -> Generator[str]:
        schemas = None if self._tools is None else self._tools.schemas
        prompt = self._llm.render([*self.messages, *news], tools=schemas)
        if len(prompt.token_ids) >= self.max_tokens:
            raise RequestError(
                f"the context is full: with this message the conversation has "
                f"{len(prompt.token_ids)} tokens of {self.max_tokens}, which leaves no room for an "
                f"answer; say something shorter or start again with /reset"
            )
        return self._generate(prompt, news)

    def _generate(self, prompt: ChatPrompt, news: list[dict[str, Any]]) -> Generator[str]:
        turn = TurnStats(len(prompt.token_ids))
        started = time.perf_counter()
        said = _Said(self._tools)
        deltas = self._llm.stream(prompt, self._params)
        assert isinstance(deltas, Generator)
        try:
            with closing(deltas):
                for delta in deltas:
                    turn.last_token = time.perf_counter() - started
                    turn.first_token = turn.first_token or turn.last_token
                    turn.answer_tokens += len(delta.tokens)
                    turn.finish_reason = delta.finish_reason or turn.finish_reason
                    yield said.push(delta)
        finally:
            if turn.answer_tokens:
                self.calls, self._results = said.calls(), []
                self.messages += [*news, said.message()]
                self.turns.append(turn)


def _nothing() -> Generator[str]:
    yield from ()


class _Said:
    """An answer as it grows. One that ends within a call has none: it stays as it was said."""

    def __init__(self, tools: Tools | None) -> None:
        parser = AnswerParser(None, None if tools is None else tools.parser())
        self._choice = ChatChoice(parser, frozenset())
        self._text: list[str] = []

    def push(self, delta: Delta) -> str:
        """-> what of it is no call"""
        self._text.append(delta.text)
        return str(self._choice.push(delta).delta.get("content", ""))

    def calls(self) -> list[Call]:
        if not self._choice.parser.ends_in_calls:
            return []
        return [Call(**each["function"]) for each in self._choice.message()["tool_calls"]]

    def message(self) -> dict[str, Any]:
        if self._choice.parser.ends_in_calls:
            return self._choice.message()
        return {"role": "assistant", "content": "".join(self._text)}
