"""One request's answers and times, from admission to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.engine.answer import Answer
from thalweg.engine.outputs import RequestOutput, Timings

if TYPE_CHECKING:
    from thalweg.engine.outputs import Delta, FinishReason
    from thalweg.scheduler.plan import NewToken, Token
    from thalweg.scheduler.request import Request, Sample
    from thalweg.text import Tokenizer


class RequestTracker:
    def __init__(
        self, request: Request, prompt: str | None, tokenizer: Tokenizer, *, now: float
    ) -> None:
        self.request = request
        timeout = request.options.timeout
        self.deadline = float("inf") if timeout is None else now + timeout
        self._prompt = prompt
        self._answers = [Answer(request, i, tokenizer) for i in range(request.params.n)]
        self._prompt_tokens: list[Token] = []
        self._admitted = now
        self._num_cached = 0
        self._cache_miss: str | None = None
        self._started: float | None = None
        self._first_token: float | None = None
        self._last_token: float | None = None

    @property
    def has_ended(self) -> bool:
        return all(answer.finish_reason is not None for answer in self._answers)

    def started(self, sample: Sample, now: float) -> None:
        """A step computes a part of it; only the first one counts."""
        if self._started is None:
            self._started = now
            self._num_cached, self._cache_miss = sample.num_cached, sample.cache_miss

    def scored(self, token: Token) -> None:
        """The next prompt token's logprob."""
        self._prompt_tokens.append(token)

    def push(self, new: NewToken, now: float) -> Delta:
        if self._first_token is None:
            self._first_token = now
        self._last_token = now
        return self._answers[new.sample.index].push(new.token, new.finish_reason)

    def end(self, reason: FinishReason) -> list[Delta]:
        """End all its answers here; the last pieces of those that had not ended."""
        return [answer.end(reason) for answer in self._answers if answer.finish_reason is None]

    def output(self, now: float) -> RequestOutput:
        started = self._started or now
        first_token = self._first_token or now
        return RequestOutput(
            request_id=self.request.id,
            prompt=self._prompt,
            prompt_token_ids=self.request.prompt,
            prompt_tokens=tuple(self._prompt_tokens),
            outputs=tuple(answer.output() for answer in self._answers),
            seed=self.request.seed,
            num_cached_tokens=self._num_cached,
            cache_miss=self._cache_miss,
            timings=Timings(
                queue=started - self._admitted,
                prompt=first_token - started,
                generation=(self._last_token or first_token) - first_token,
            ),
        )
