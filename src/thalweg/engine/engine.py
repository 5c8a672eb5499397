"""The step: schedule, run, sample, commit, hand out. One thread calls all of this."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.engine.tracker import RequestTracker
from thalweg.errors import RequestError
from thalweg.runner.sampler import LogitsSource

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.engine.outputs import Delta, RequestOutput
    from thalweg.memory.manager import CacheManager
    from thalweg.runner.batch_builder import BatchBuilder
    from thalweg.runner.runner import Runner
    from thalweg.runner.sampler import Sampler
    from thalweg.scheduler.plan import StepPlan, StepResult
    from thalweg.scheduler.request import Request
    from thalweg.scheduler.scheduler import Scheduler
    from thalweg.text import Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class EngineParts:
    caches: CacheManager
    scheduler: Scheduler
    batch_builder: BatchBuilder
    runner: Runner
    sampler: Sampler
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class InFlight:
    """A pass that was started and whose results were not looked at."""

    plan: StepPlan
    hidden: Tensor  # [L, hidden_size], the rows whose logits are wanted


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    deltas: tuple[Delta, ...] = ()
    finished: tuple[RequestOutput, ...] = ()
    """Requests whose last answer has ended."""


class Engine:
    """Runs requests. Each admitted one ends in exactly one `finished` output or `abort`."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._trackers: dict[str, RequestTracker] = {}

    @property
    def has_work(self) -> bool:
        return self._parts.scheduler.has_work

    def is_underway(self, request_id: str) -> bool:
        """Whether it was added and has not ended."""
        return request_id in self._trackers

    def add(self, request: Request, prompt: str | None = None) -> None:
        """Queue an admitted request; `prompt` is its text, for the output."""
        if request.id in self._trackers:
            raise RequestError(f"request id {request.id!r} is in use")
        self._trackers[request.id] = RequestTracker(request, prompt, self._parts.tokenizer)
        self._parts.scheduler.add(request)

    def step(self) -> StepOutput:
        """One pass. If it fails, its sequences start again from nothing and the error goes on."""
        plan = self._parts.scheduler.schedule()
        if not plan.rows:
            return StepOutput()
        try:
            result = self._sample(self._launch(plan))
        except BaseException:
            self._parts.scheduler.rollback(plan)
            raise
        return self._collect(plan, result)

    def abort(self, request_id: str) -> RequestOutput:
        """End a request between two steps, with what it has so far."""
        tracker = self._trackers.pop(request_id)
        self._parts.scheduler.abort(request_id)
        return tracker.abort()

    def _launch(self, plan: StepPlan) -> InFlight:
        now = time.perf_counter()
        for row in plan.rows:
            self._trackers[row.sample.request.id].started(row.sample, now)
        batch = self._parts.batch_builder.build(plan)
        return InFlight(plan, self._parts.runner.forward(batch, plan.copies))

    def _sample(self, work: InFlight) -> StepResult:
        source = LogitsSource(work.hidden, self._parts.runner.logits)
        return self._parts.sampler(source, work.plan)

    def _collect(self, plan: StepPlan, result: StepResult) -> StepOutput:
        parts = self._parts
        for scoring, token in zip(plan.scoring, result.scored, strict=True):
            self._trackers[scoring.sample.request.id].scored(token)
        now = time.perf_counter()
        deltas: list[Delta] = []
        finished: list[RequestOutput] = []
        for new in parts.scheduler.update(plan, result):
            tracker = self._trackers[new.sample.request.id]
            delta = tracker.push(new, now)
            deltas.append(delta)
            if delta.finish_reason is not None and new.finish_reason is None:
                parts.scheduler.finish(new.sample)  # its text ended it
            if tracker.has_ended:
                finished.append(self._trackers.pop(new.sample.request.id).output())
        return StepOutput(tuple(deltas), tuple(finished))
