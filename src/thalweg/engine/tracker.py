"""One request's answers and times, from admission to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.engine.answer import Answer
from thalweg.engine.outputs import Progress, RequestOutput, Timings
from thalweg.speculative.counts import DraftCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.outputs import Delta, FinishReason
    from thalweg.scheduler.plan import NewToken, ScheduledRow, Token
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
        self.counts = DraftCounts()
        self._started: float | None = None
        self._first_token: float | None = None
        self._last_tokens: list[float | None] = [None] * request.params.n
        self._gaps: list[list[float]] = [[] for _ in self._answers]
        self._num_computed = 0
        self._num_known = 0
        self._samples: set[Sample] = set()

    @property
    def has_ended(self) -> bool:
        return all(answer.finish_reason is not None for answer in self._answers)

    @property
    def progress(self) -> Progress | None:
        """None once there is a token."""
        if self._first_token is not None:
            return None
        return Progress(self._num_known, len(self.request.prompt))

    def launched(self, row: ScheduledRow, now: float) -> None:
        """A step computes a part of it."""
        self._samples.add(row.sample)
        self._num_computed += len(row.token_ids)
        self._num_known = row.sample.seq.num_computed
        if self._started is None:
            self._started = now
            self._num_cached, self._cache_miss = row.sample.num_cached, row.sample.cache_miss

    def scored(self, token: Token) -> None:
        """The next prompt token's logprob."""
        self._prompt_tokens.append(token)

    def num_taken(self, index: int, token_ids: Sequence[int]) -> int:
        """How many of these, which may come next, an answer takes before its text ends it."""
        return self._answers[index].num_taken(token_ids)

    def push(self, new: NewToken, now: float) -> Delta:
        if self._first_token is None:
            self._first_token = now
        index = new.sample.index
        if (last := self._last_tokens[index]) is not None:
            self._gaps[index].append(now - last)
        self._last_tokens[index] = now
        return self._answers[index].push(new.token, new.finish_reason)

    def end(self, reason: FinishReason) -> list[Delta]:
        """End all its answers here; the last pieces of those that had not ended."""
        return [answer.end(reason) for answer in self._answers if answer.finish_reason is None]

    def output(self, now: float) -> RequestOutput:
        started = self._started or now
        first_token = self._first_token or now
        last_token = max((each for each in self._last_tokens if each), default=first_token)
        return RequestOutput(
            request_id=self.request.id,
            prompt=self._prompt,
            prompt_token_ids=self.request.prompt,
            prompt_tokens=tuple(self._prompt_tokens),
            outputs=tuple(answer.output() for answer in self._answers),
            seed=self.request.seed,
            num_cached_tokens=self._num_cached,
            cache_miss=self._cache_miss,
            num_computed_tokens=self._num_computed,
            num_preemptions=sum(sample.num_preemptions for sample in self._samples),
            drafts=self.counts,
            timings=Timings(
                queue=started - self._admitted,
                prompt=first_token - started,
                generation=last_token - first_token,
                inter_token=tuple(map(tuple, self._gaps)),
            ),
        )
