"""Drafts within the step: asked for before it, judged after it."""

from __future__ import annotations

import logging
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from thalweg.runner.sampler import next_draw
from thalweg.scheduler.trace import Trace
from thalweg.speculative.acceptance import num_accepted
from thalweg.speculative.counts import DraftCounts
from thalweg.speculative.drafter import DraftRow
from thalweg.speculative.gate import Candidate, GateRecord, Verified

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thalweg.engine.tracker import RequestTracker
    from thalweg.scheduler.plan import ScheduledRow, StepPlan, StepResult
    from thalweg.scheduler.request import Sample
    from thalweg.scheduler.scheduler import Scheduler
    from thalweg.speculative.drafter import Drafter
    from thalweg.speculative.gate import Gate

LOGGER = logging.getLogger("thalweg.engine")

Key = tuple[str, int]
"""A request's id and which of its answers."""


class Speculation:
    """At most `num_drafts` guesses of each answer under way; with 0 the drafter is not asked.

    The gate says how many there are; None: always as many as there may be.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        num_drafts: int,
        gate: Gate[Key] | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._drafter = drafter
        self._num_drafts = num_drafts
        self._gate = gate
        self._trace = trace or Trace()
        self._held: frozenset[Key] = frozenset()
        self._verified: dict[Key, Verified] = {}
        self.counts = DraftCounts()

    def ungated(self) -> Speculation:
        """The same drafter, always asked for as many as there may be."""
        return Speculation(self._drafter, num_drafts=self._num_drafts, trace=self._trace)

    @property
    def record(self) -> GateRecord:
        """What the gate has decided so far."""
        return GateRecord() if self._gate is None else self._gate.record

    def draft(self, scheduler: Scheduler) -> None:
        """Have what follows the answers under way guessed, for the step that comes."""
        self._held = frozenset()
        if not (most := self._num_drafts):
            return
        asked = [(s, n) for s in scheduler.decoding if (n := min(most, s.num_left - 1)) > 0]
        if self._gate is not None and asked:
            asked = self._ask_gate(self._gate, asked)
        if not asked:
            return
        rows = [DraftRow(s.tokens, n, s.seq, partial(next_draw, s)) for s, n in asked]
        for (sample, _), drafts in zip(asked, self._drafter.propose(rows), strict=True):
            scheduler.draft(sample, drafts)

    def judge(
        self, plan: StepPlan, result: StepResult, trackers: Mapping[str, RequestTracker]
    ) -> list[int]:
        """How many drafts are kept of each of the plan's rows: no token that plain decoding would
        not draw, and none after what ends an answer."""
        for request_id, _ in self._held:
            if (tracker := trackers.get(request_id)) is not None:
                tracker.counts = tracker.counts.held()
        self._verified = {}
        if not any(row.reservation.num_drafts for row in plan.rows):
            return [0] * len(plan.rows)
        drawn = {
            key: [token.id for _, token in group]
            for key, group in groupby(
                zip(plan.sampling, result.sampled, strict=True),
                key=lambda pair: (pair[0].request.id, pair[0].sample_index),
            )
        }
        accepted = []
        for row in plan.rows:
            num_kept, num_drafts = 0, row.reservation.num_drafts
            if num_drafts and not row.sample.has_ended:
                request, index = row.sample.request, row.sample.index
                tracker = trackers[request.id]
                num_kept = _num_kept(row, drawn[request.id, index], tracker)
                tracker.counts = tracker.counts.plus(num_drafts, num_kept)
                self.counts = self.counts.plus(num_drafts, num_kept)
            accepted.append(num_kept)
        self._verified = verified(plan, accepted)
        return accepted

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Tell the gate what the step took that was judged last."""
        if self._gate is None or not self._num_drafts:
            return
        self._gate.observe(
            self._verified,
            num_seqs=len(plan.rows),
            seconds=seconds if computes_answers_alone(plan) else None,
        )

    def _ask_gate(
        self, gate: Gate[Key], asked: list[tuple[Sample, int]]
    ) -> list[tuple[Sample, int]]:
        was_open = gate.is_open
        chosen = gate.choose([Candidate(key_of(s), n) for s, n in asked])
        self._trace.asked(asked, chosen)
        if was_open != gate.is_open:
            LOGGER.info("speculation is %s: %s", "on" if gate.is_open else "off", gate.reason())
        self._held = frozenset(key_of(s) for (s, _), n in zip(asked, chosen, strict=True) if not n)
        return [(s, n) for (s, _), n in zip(asked, chosen, strict=True) if n]


def key_of(sample: Sample) -> Key:
    """An answer's name."""
    return sample.request.id, sample.index


def verified(plan: StepPlan, num_accepted: Sequence[int]) -> dict[Key, Verified]:
    """What came of the drafts of each row that had some."""
    return {
        key_of(row.sample): Verified(row.reservation.num_drafts, num_kept)
        for row, num_kept in zip(plan.rows, num_accepted, strict=True)
        if row.reservation.num_drafts
    }


def computes_answers_alone(plan: StepPlan) -> bool:
    """Whether no row has more than one token beside its drafts."""
    return all(len(row.token_ids) == 1 + row.reservation.num_drafts for row in plan.rows)


def _num_kept(row: ScheduledRow, drawn: Sequence[int], tracker: RequestTracker) -> int:
    sample = row.sample
    num_kept = num_accepted(
        row.token_ids[-row.reservation.num_drafts :],
        drawn,
        stop_ids=sample.request.stop_ids,
        budget=sample.num_left,
    )
    return tracker.num_taken(sample.index, drawn[: num_kept + 1]) - 1
