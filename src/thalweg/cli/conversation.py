"""A conversation with a model: its history, and what each answer cost."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import RequestError

if TYPE_CHECKING:
    from thalweg import LLM, SamplingParams
    from thalweg.engine.outputs import FinishReason
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
    def __init__(self, llm: LLM, system: str | None, params: SamplingParams) -> None:
        self._llm = llm
        self._params = params
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = list(self._start)
        self.turns: list[TurnStats] = []

    @property
    def max_tokens(self) -> int:
        """What prompt and answer together may have."""
        return self._llm.loaded.limits.max_model_len

    @property
    def context_used(self) -> int:
        return self.turns[-1].prompt_tokens + self.turns[-1].answer_tokens if self.turns else 0

    def ask(self, text: str) -> Generator[str]:
        """The answer, piece by piece. Closing it early keeps what was said so far.

        Raises `RequestError`, before anything is generated, if the conversation does not fit the
        context with this or the template refuses it; it is then as it was before.
        """
        question = {"role": "user", "content": text}
        prompt = self._llm.render([*self.messages, question])
        if len(prompt.token_ids) >= self.max_tokens:
            raise RequestError(
                f"the context is full: with this message the conversation has "
                f"{len(prompt.token_ids)} tokens of {self.max_tokens}, which leaves no room for an "
                f"answer; say something shorter or start again with /reset"
            )
        return self._answer(question, prompt)

    def _answer(self, question: dict[str, str], prompt: ChatPrompt) -> Generator[str]:
        turn = TurnStats(len(prompt.token_ids))
        started = time.perf_counter()
        said: list[str] = []
        deltas = self._llm.stream(prompt, self._params)
        assert isinstance(deltas, Generator)
        try:
            with closing(deltas):
                for delta in deltas:
                    turn.last_token = time.perf_counter() - started
                    turn.first_token = turn.first_token or turn.last_token
                    turn.answer_tokens += len(delta.tokens)
                    turn.finish_reason = delta.finish_reason or turn.finish_reason
                    said.append(delta.text)
                    yield delta.text
        finally:
            if turn.answer_tokens:
                answer = {"role": "assistant", "content": "".join(said)}
                self.messages += [question, answer]
                self.turns.append(turn)
