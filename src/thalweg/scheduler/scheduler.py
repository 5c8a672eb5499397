"""Who computes how many tokens in the next step.

There is no prefill and no decode here: every sample has tokens that are known and tokens that are
computed, and each step lets the second catch up with the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import OutOfCache
from thalweg.memory.offload.host_tier import HostTier
from thalweg.memory.prefix import Worth
from thalweg.scheduler.cost import Load
from thalweg.scheduler.places import Places
from thalweg.scheduler.plan import (
    FinishReason,
    NewToken,
    Pending,
    SamplingRow,
    ScheduledRow,
    ScoringRow,
    StepPlan,
    StepResult,
)
from thalweg.scheduler.policy import FirstCome
from thalweg.scheduler.request import Request, Sample
from thalweg.scheduler.reuse import PrefixReuse, ReusePolicy
from thalweg.scheduler.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from thalweg.memory.manager import BlockCopy, CacheManager, Fold, Snapshot
    from thalweg.memory.offload.host_tier import Move
    from thalweg.memory.prefix import PrefixCache
    from thalweg.scheduler.policy import Policy, StepBudget


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    max_num_seqs: int
    """Samples running at once."""
    max_num_batched_tokens: int
    """New tokens in one step."""


class Scheduler:
    """The more urgent, then the earlier first, in steps that mix prompts and running answers.

    Owns the sequences of all samples. When memory runs out the last in rank gives its up: it goes
    to the host tier and comes back, or is computed again where that is full.
    """

    def __init__(
        self,
        caches: CacheManager,
        limits: SchedulerLimits,
        reuse: ReusePolicy | None = None,
        *,
        policy: Policy | None = None,
        tier: HostTier | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._caches = caches
        self._reuse = PrefixReuse(caches, reuse or ReusePolicy())
        self._limits = limits
        self._trace = trace or Trace()
        self._policy = policy or FirstCome(limits.max_num_batched_tokens)
        self._places = Places(
            caches, self._reuse, tier or HostTier(caches), max_num_seqs=limits.max_num_seqs
        )
        self._running, self._waiting = self._places.running, self._places.waiting
        self._folds: list[Fold] = []
        self._copies: list[BlockCopy] = []
        self._num_arrived = 0

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    @property
    def prefix_cache(self) -> PrefixCache:
        return self._reuse.cache

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_preemptions(self) -> int:
        return self._places.num_preemptions

    @property
    def num_parkings(self) -> int:
        """Preemptions that moved what was computed to the host tier."""
        return self._places.num_parkings

    @property
    def decoding(self) -> list[Sample]:
        """Samples that are to compute the last token of an answer under way, and no other."""
        return [s for s in self._running if s.num_wanted == 1 and s.num_generated]

    def draft(self, sample: Sample, drafts: tuple[int, ...]) -> None:
        """Guesses of what follows a sample's tokens, for the next step. Only of `decoding` ones."""
        self._trace.drafted(sample, drafts)
        sample.drafts = drafts

    def take_pending(self) -> Pending:
        """What the next step's plan would have to be made before its pass; the caller makes it."""
        pending = Pending(tuple(self._folds), tuple(self._copies))
        self._copies.clear()
        self._folds.clear()
        return pending

    def make_room(self, num_blocks: int, num_slots: int) -> None:
        """Have so many free for what is about to be borrowed, as far as the prefix cache can."""
        blocks, slots = self._caches.blocks.num_free, self._caches.slots.num_free
        short = OutOfCache(max(0, num_blocks - blocks), max(0, num_slots - slots))
        if short.blocks or short.slots:
            self._trace.made_room(num_blocks, num_slots)
            self._reuse.evict(short)

    def add(self, request: Request) -> None:
        """Queue a request. The caller has checked that it fits an empty engine."""
        self._trace.added(request)
        self._places.wait(Sample(request, 0, list(request.prompt), self._num_arrived))
        self._num_arrived += 1

    def schedule(self) -> StepPlan:
        """Reserve memory for the next step. Only an idle scheduler returns a plan without rows, or
        one that was told to `isolate` a request that has ended."""
        self._places.make_way()
        rows: list[ScheduledRow] = []
        shares, budget = self._shares()
        for sample, share in shares:
            if sample not in self._running:
                continue  # gave way to an earlier one
            if (row := self._reserve(sample, share, rows)) is not None:
                rows.append(row)
        while budget.has_room and (newcomer := self._places.start_next()) is not None:
            share = max(1, budget.take(newcomer.seq.num_computed, newcomer.num_wanted))
            row = self._reserve(newcomer, share, rows)
            assert row is not None
            rows.append(row)
        plan = self._plan(rows)
        self._trace.planned(plan)
        return plan

    def update(
        self, plan: StepPlan, result: StepResult, num_accepted: Sequence[int] = ()
    ) -> list[NewToken]:
        """Commit the reservations, publish what was computed, and append what was drawn.

        `num_accepted`: for each of the plan's rows, how many of its drafts are kept; none if empty.
        """
        accepted = dict(zip((r.sample for r in plan.rows), num_accepted, strict=False))
        snapshots: dict[Sample, tuple[Snapshot, ...]] = {}
        for part in plan.rows:
            num_rejected = part.reservation.num_drafts - accepted.get(part.sample, 0)
            num_kept = len(part.token_ids) - num_rejected
            snapshots[part.sample] = self._caches.commit(part.reservation, num_kept)
            part.sample.drafts = ()
        for scored in plan.scoring:
            scored.sample.num_prompt_scored += 1
        new: list[NewToken] = []
        samples = {(r.sample.request.id, r.sample.index): r.sample for r in plan.rows}
        for row, token in zip(plan.sampling, result.sampled, strict=True):
            sample = samples.get((row.request.id, row.sample_index))
            origin = sample or samples[row.request.id, 0]
            if origin.has_ended:
                continue
            if sample is None:
                sample = self._fork(origin, row.sample_index)
            if row.num_drafts <= accepted.get(sample, 0):
                new.append(NewToken(sample, token, _finish_reason(row, token.id)))
        for event in new:
            event.sample.tokens.append(event.token.id)
        for sample, captured in snapshots.items():
            self._reuse.publish(sample, captured)
            if sample.has_ended:  # cancelled meanwhile
                self._places.free(sample)
        for event in new:
            if event.finish_reason is not None:
                self._places.end(event.sample)
        for sample in snapshots:
            self._folds += self._caches.fold(sample.seq)
        self._trace.stepped(result, num_accepted, new)
        return new

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Tell the policy what a step took."""
        self._trace.took(seconds)
        self._policy.observe(plan.load, seconds)

    def finish(self, sample: Sample) -> None:
        """End one answer, because of what its text says."""
        self._trace.finished(sample)
        self._places.end(sample)

    def abort(self, request_id: str) -> None:
        """End all answers of a request, wherever they are, at any time."""
        self._trace.aborted(request_id)
        for sample in [*self._running, *self._waiting]:
            if sample.request.id == request_id:
                self._places.end(sample)

    def rollback(self, plan: StepPlan) -> None:
        """Undo a step that failed: its sequences are half-written and start again from nothing.

        So do those that only its folds, copies and moves wrote to: they cannot be copied to again
        once what they were copied from is free.
        """
        self._trace.failed()
        for row in plan.rows:
            self._caches.abort(row.reservation)
            if row.sample.has_ended:
                self._places.free(row.sample)
        spoilt = {row.sample for row in plan.rows}
        targets = {copy.dst for copy in plan.copies}
        targets |= {pair.pool for move in plan.moves for pair in move.blocks}
        folded = {fold.slot for fold in plan.folds}
        for sample in reversed(self._running.copy()):
            is_written = sample.seq.slot in folded or not targets.isdisjoint(sample.seq.blocks)
            if sample in spoilt or is_written:
                self._places.free(sample)
                self._places.give_way(sample)
        self._places.forget(plan.moves)

    def preempt(self, sample: Sample) -> None:
        """Let a running sample give up its memory and wait for its turn to come again."""
        self._trace.preempted(sample)
        self._places.give_way(sample)

    def isolate(self, request_id: str | None) -> None:
        """Compute nothing but this request until called again; None: everything as ever.

        The others give up their memory, so it runs as if it had come to an idle scheduler.
        """
        self._trace.isolated(request_id)
        self._places.isolate(request_id)

    def _shares(self) -> tuple[list[tuple[Sample, int]], StepBudget]:
        """Every running sample gets a token before any gets more; then in order of rank."""
        sharers = self._running[: self._limits.max_num_batched_tokens]
        load = Load(num_seqs=len(sharers))
        for sample in sharers:
            load = load.more(sample.seq.num_computed, 1)
        num_answers = sum(sample.num_generated > 0 for sample in sharers)
        budget = self._policy.begin(load, num_answers=num_answers)
        shares = [
            (sample, 1 + budget.take(sample.seq.num_computed + 1, _num_more(sample)))
            for sample in sharers
        ]
        return shares, budget

    def _reserve(
        self, sample: Sample, num_new: int, scheduled: list[ScheduledRow]
    ) -> ScheduledRow | None:
        """A row for the sample. Those after it, and at last the sample itself, make room for it.

        Where only a slot is missing the sample waits a step instead: running samples have a slot
        each, but while forks part from the slot they share they hold one more.
        """
        start = sample.seq.num_computed
        token_ids = [*sample.tokens[start:], *sample.drafts][:num_new]
        num_drafts = max(0, num_new - sample.num_wanted)
        worth: Worth | None = Worth.SPARE  # of what is wanted beyond what is needed
        capture_at = self._reuse.capture_at(sample, num_new, Worth.SPARE)
        while True:
            try:
                r = self._caches.reserve(
                    sample.seq,
                    len(token_ids),
                    num_drafts=num_drafts,
                    capture_at=capture_at,
                    leave_slots=self._places.num_coming if num_drafts or capture_at else 0,
                )
                return ScheduledRow(sample, r, token_ids)
            except OutOfCache as missing:
                if self._reuse.evict(missing, worth):
                    continue
                if worth is not None:  # neither drafts nor snapshots are worth anyone's place
                    del token_ids[len(token_ids) - num_drafts :]
                    worth = Worth.PLACED if worth is Worth.SPARE else None
                    num_drafts, capture_at = 0, []
                    if worth is not None:
                        capture_at = self._reuse.capture_at(sample, len(token_ids), worth)
                    continue
                if scheduled and not missing.blocks:
                    return None
                victim = self._running[-1]
                assert all(row.sample is not victim for row in scheduled)
                self._places.give_way(victim)
                if victim is sample:
                    return None

    def _plan(self, rows: list[ScheduledRow]) -> StepPlan:
        logits_rows: list[int] = []
        sampling: list[SamplingRow] = []
        scoring: list[ScoringRow] = []
        offset, load = 0, Load(num_seqs=len(rows))
        for row in rows:
            sample, start, count = row.sample, row.sample.seq.num_computed, len(row.token_ids)
            load = load.more(start, count)
            for position in _scored_positions(sample, range(start, start + count)):
                scoring.append(ScoringRow(sample, len(logits_rows), sample.tokens[position + 1]))
                logits_rows.append(offset + position - start)
            if count >= sample.num_wanted:
                drafts = row.token_ids[sample.num_wanted :]
                first_answer = sample.num_generated == 0
                for index in range(sample.request.params.n) if first_answer else [sample.index]:
                    sampling.append(
                        SamplingRow(sample.request, index, len(logits_rows), sample.tokens)
                    )
                logits_rows.append(offset + sample.num_wanted - 1)
                for n in range(1, len(drafts) + 1):
                    history = [*sample.tokens, *drafts[:n]]
                    sampling.append(
                        SamplingRow(sample.request, sample.index, len(logits_rows), history, n)
                    )
                    logits_rows.append(offset + sample.num_wanted - 1 + n)
            offset += count
        pending = Pending()
        moves: tuple[Move, ...] = ()
        if rows:  # else nobody would make them
            pending, moves = self.take_pending(), tuple(self._places.moves)
            self._places.moves.clear()
        return StepPlan(
            tuple(rows),
            tuple(logits_rows),
            tuple(sampling),
            tuple(scoring),
            folds=pending.folds,
            copies=pending.copies,
            moves=moves,
            load=load,
        )

    def _fork(self, sample: Sample, index: int) -> Sample:
        """Another answer to the same prompt, whose memory is shared as far as it is equal."""
        twin = Sample(sample.request, index, list(sample.request.prompt), sample.arrival)
        twin.rolls_from = sample.rolls_from
        try:
            if self._places.is_full:
                raise OutOfCache(blocks=0, slots=1)
            twin.seq, copies = self._caches.fork(sample.seq)
        except OutOfCache:  # it computes the prompt itself, later
            self._places.wait(twin)
            return twin
        self._copies += copies
        self._places.run(twin)
        return twin


def _num_more(sample: Sample) -> int:
    """Tokens that it could compute beside the first."""
    return sample.num_wanted - 1 + len(sample.drafts)


def _finish_reason(row: SamplingRow, token_id: int) -> FinishReason | None:
    if token_id in row.request.stop_ids:
        return "stop"
    if len(row.history) + 1 - len(row.request.prompt) == row.request.max_tokens:
        return "length"
    return None


def _scored_positions(sample: Sample, positions: range) -> Iterable[int]:
    """Those of a row's positions whose logits score a prompt token that was not scored yet."""
    if sample.index or sample.request.params.prompt_logprobs is None:
        return ()
    return range(
        max(positions.start, sample.num_prompt_scored),
        min(positions.stop, len(sample.request.prompt) - 1),
    )
