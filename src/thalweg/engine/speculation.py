"""Drafts within the step: asked for before it, judged after it."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from thalweg.runner.sampler import next_draw
from thalweg.speculative.acceptance import num_accepted
from thalweg.speculative.counts import DraftCounts
from thalweg.speculative.drafter import DraftRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thalweg.engine.tracker import RequestTracker
    from thalweg.scheduler.plan import ScheduledRow, StepPlan, StepResult
    from thalweg.scheduler.scheduler import Scheduler
    from thalweg.speculative.drafter import Drafter


class Speculation:
    """At most `num_drafts` guesses of each answer under way; with 0 the drafter is not asked."""

    def __init__(self, drafter: Drafter, *, num_drafts: int) -> None:
        self._drafter = drafter
        self._num_drafts = num_drafts
        self.counts = DraftCounts()

    def draft(self, scheduler: Scheduler) -> None:
        """Have what follows the answers under way guessed, for the step that comes."""
        if not (most := self._num_drafts):
            return
        asked = [(s, n) for s in scheduler.decoding if (n := min(most, s.num_left - 1)) > 0]
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
        return accepted


def _num_kept(row: ScheduledRow, drawn: Sequence[int], tracker: RequestTracker) -> int:
    sample = row.sample
    num_kept = num_accepted(
        row.token_ids[-row.reservation.num_drafts :],
        drawn,
        stop_ids=sample.request.stop_ids,
        budget=sample.num_left,
    )
    return tracker.num_taken(sample.index, drawn[: num_kept + 1]) - 1
