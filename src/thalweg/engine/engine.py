"""The step: schedule, run, sample, commit, hand out. One thread calls all of this."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.engine.metrics import EngineStats, Metrics
from thalweg.engine.tracker import RequestTracker
from thalweg.errors import QueueFull, RequestError
from thalweg.runner.sampler import LogitsSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from thalweg.engine.outputs import Delta, Progress, RequestOutput
    from thalweg.engine.speculation import Speculation
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
    speculation: Speculation
    tokenizer: Tokenizer
    max_num_waiting: int
    clock: Callable[[], float] = time.perf_counter
    """Seconds."""


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
    """Runs requests. Each one taken ends in exactly one output: of `step`, or of `cancel`."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._trackers: dict[str, RequestTracker] = {}
        self.last_step: tuple[str, ...] = ()
        """The requests that the last step computed parts of, or failed to."""
        self._metrics = Metrics()

    @property
    def has_work(self) -> bool:
        return self._parts.scheduler.has_work

    def is_underway(self, request_id: str) -> bool:
        """Whether it was added and has not ended."""
        return request_id in self._trackers

    @property
    def has_room(self) -> bool:
        """`add_request` would take a request now."""
        return self._parts.scheduler.num_waiting < self._parts.max_num_waiting

    def add_request(self, request: Request, prompt: str | None = None) -> None:
        """Queue an admitted request; `prompt` is its text, for the output. Raises `RequestError`
        if its id is in use, and `QueueFull`, which is one, while `has_room` is False."""
        if request.id in self._trackers:
            raise RequestError(f"request id {request.id!r} is in use")
        if not self.has_room:
            raise QueueFull(f"{self._parts.max_num_waiting} requests are waiting already")
        now = self._parts.clock()
        self._trackers[request.id] = RequestTracker(request, prompt, self._parts.tokenizer, now=now)
        self._parts.scheduler.add(request)

    def step(self) -> StepOutput:
        """One pass. If it fails, its sequences start again from nothing and the error goes on."""
        begin = self._parts.clock()
        overdue = self._end_overdue(begin)
        if overdue.finished:  # a pass that failed now would lose them
            return overdue
        self._parts.speculation.draft(self._parts.scheduler)
        plan = self._parts.scheduler.schedule()
        self.last_step = tuple(dict.fromkeys(row.sample.request.id for row in plan.rows))
        if not plan.rows:
            return StepOutput()
        try:
            result = self._sample(self._launch(plan))
        except BaseException:
            self._parts.scheduler.rollback(plan)
            self._metrics.failed()
            raise
        output = self._collect(plan, result)
        seconds = self._parts.clock() - begin
        self._parts.scheduler.observe(plan, seconds)
        self._parts.speculation.observe(plan, seconds)
        self._metrics.stepped(plan, seconds)
        return output

    def cancel(self, request_id: str) -> StepOutput:
        """End a request, wherever it is, with what it has so far, text that waited for the rest of
        a stop string included. `KeyError` if it has ended."""
        tracker = self._trackers[request_id]
        self._parts.scheduler.abort(request_id)
        deltas = tracker.end("abort")
        return StepOutput(tuple(deltas), (self._finish(tracker, self._parts.clock()),))

    def progress(self, request_id: str) -> Progress | None:
        """How far its prompt is; None once its first token is there or it has ended. May be called
        from any thread."""
        tracker = self._trackers.get(request_id)
        return None if tracker is None else tracker.progress

    def stats(self) -> EngineStats:
        """Counters, queues and pools. May be called from any thread."""
        parts = self._parts
        return self._metrics.snapshot(parts.scheduler, parts.caches, parts.speculation)

    def _finish(self, tracker: RequestTracker, now: float) -> RequestOutput:
        del self._trackers[tracker.request.id]
        output = tracker.output(now)
        self._metrics.ended(output)
        return output

    def isolate(self, request_id: str | None) -> None:
        """Compute nothing but this request until called again; None: everything as ever."""
        self._parts.scheduler.isolate(request_id)

    def _end_overdue(self, now: float) -> StepOutput:
        """End the requests whose time is over."""
        late = [tracker for tracker in self._trackers.values() if now >= tracker.deadline]
        deltas: list[Delta] = []
        for tracker in late:
            self._parts.scheduler.abort(tracker.request.id)
            deltas += tracker.end("timeout")
        return StepOutput(tuple(deltas), tuple(self._finish(tracker, now) for tracker in late))

    def _launch(self, plan: StepPlan) -> InFlight:
        now = self._parts.clock()
        for row in plan.rows:
            self._trackers[row.sample.request.id].launched(row, now)
        self._parts.runner.fold(plan.folds)
        batch = self._parts.batch_builder.build(plan)
        return InFlight(plan, self._parts.runner.forward(batch, plan.copies, plan.moves))

    def _sample(self, work: InFlight) -> StepResult:
        source = LogitsSource(work.hidden, self._parts.runner.logits)
        return self._parts.sampler(source, work.plan)

    def _collect(self, plan: StepPlan, result: StepResult) -> StepOutput:
        parts = self._parts
        for scoring, token in zip(plan.scoring, result.scored, strict=True):
            if scoring.sample.has_ended:
                continue  # cancelled meanwhile
            self._trackers[scoring.sample.request.id].scored(token)
        accepted = parts.speculation.judge(plan, result, self._trackers)
        now = parts.clock()
        deltas: list[Delta] = []
        finished: list[RequestOutput] = []
        for new in parts.scheduler.update(plan, result, accepted):
            tracker = self._trackers[new.sample.request.id]
            delta = tracker.push(new, now)
            deltas.append(delta)
            if delta.finish_reason is not None and new.finish_reason is None:
                parts.scheduler.finish(new.sample)  # its text ended it
            if tracker.has_ended:
                finished.append(self._finish(tracker, now))
        return StepOutput(tuple(deltas), tuple(finished))
