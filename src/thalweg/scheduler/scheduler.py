"""Who computes how many tokens in the next step.

There is no prefill and no decode here: every sample has tokens that are known and tokens that are
computed, and each step lets the second catch up with the first.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from thalweg.errors import OutOfCache
from thalweg.memory.offload.host_tier import HostTier
from thalweg.scheduler.cost import Load
from thalweg.scheduler.plan import (
    FinishReason,
    NewToken,
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
    from collections.abc import Iterable

    from thalweg.memory.manager import BlockCopy, CacheManager
    from thalweg.memory.offload.host_tier import Move
    from thalweg.memory.prefix import PrefixCache
    from thalweg.scheduler.policy import Policy, StepBudget

RANK = attrgetter("rank")


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
        self._tier = tier or HostTier(caches)
        self._trace = trace or Trace()
        self._policy = policy or FirstCome(limits.max_num_batched_tokens)
        self._waiting: list[Sample] = []  # both in order of rank
        self._running: list[Sample] = []
        self._copies: list[BlockCopy] = []
        self._moves: list[Move] = []
        self._num_arrived = 0
        self._alone: str | None = None
        self.num_preemptions = self.num_parkings = 0
        self._stuck: Sample | None = None
        """The first one waiting, if it did not fit and nothing was freed since."""

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

    def add(self, request: Request) -> None:
        """Queue a request. The caller has checked that it fits an empty engine."""
        self._trace.added(request)
        insort(self._waiting, Sample(request, 0, list(request.prompt), self._num_arrived), key=RANK)
        self._num_arrived += 1

    def schedule(self) -> StepPlan:
        """Reserve memory for the next step. Only an idle scheduler returns a plan without rows, or
        one that was told to `isolate` a request that has ended."""
        self._make_way()
        rows: list[ScheduledRow] = []
        shares, budget = self._shares()
        for sample, share in shares:
            if sample not in self._running:
                continue  # gave way to an earlier one
            if (row := self._reserve(sample, share, rows)) is not None:
                rows.append(row)
        while budget.has_room and (newcomer := self._start_next()) is not None:
            share = max(1, budget.take(newcomer.seq.num_computed, newcomer.num_wanted))
            row = self._reserve(newcomer, share, rows)
            assert row is not None
            rows.append(row)
        plan = self._plan(rows)
        self._trace.planned(plan)
        return plan

    def update(self, plan: StepPlan, result: StepResult) -> list[NewToken]:
        """Commit the reservations, publish what was computed, and append what was drawn."""
        for part in plan.rows:
            snapshots = self._caches.commit(part.reservation, len(part.token_ids))
            self._reuse.publish(part.sample, snapshots)
            if part.sample.has_ended:  # cancelled meanwhile
                self._free(part.sample)
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
            new.append(NewToken(sample, token, self._finish_reason(sample, token.id)))
        for event in new:
            event.sample.tokens.append(event.token.id)
            if event.finish_reason is not None:
                self._end(event.sample)
        self._trace.stepped(result, new)
        return new

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Tell the policy what a step took."""
        self._trace.took(seconds)
        self._policy.observe(plan.load, seconds)

    def finish(self, sample: Sample) -> None:
        """End one answer, because of what its text says."""
        self._trace.finished(sample)
        self._end(sample)

    def _end(self, sample: Sample) -> None:
        """Its memory is free at once, or after the step that it is in."""
        sample.has_ended = True
        if sample in self._running:
            self._running.remove(sample)
        elif sample in self._waiting:
            self._waiting.remove(sample)
        if sample.parked is not None:
            self._tier.drop(sample.parked)
            sample.parked = None
        if not sample.seq.reserved:
            self._free(sample)

    def abort(self, request_id: str) -> None:
        """End all answers of a request, wherever they are, at any time."""
        self._trace.aborted(request_id)
        for sample in [*self._running, *self._waiting]:
            if sample.request.id == request_id:
                self._end(sample)

    def rollback(self, plan: StepPlan) -> None:
        """Undo a step that failed: its sequences are half-written and start again from nothing.

        So do those that only its copies and moves wrote to: they cannot be copied to again once
        what they were copied from is free.
        """
        self._trace.failed()
        for row in plan.rows:
            self._caches.abort(row.reservation)
            if row.sample.has_ended:
                self._free(row.sample)
        spoilt = {row.sample for row in plan.rows}
        targets = {copy.dst for copy in plan.copies}
        targets |= {pair.pool for move in plan.moves for pair in move.blocks}
        for sample in reversed(self._running.copy()):
            if sample in spoilt or not targets.isdisjoint(sample.seq.blocks):
                self._free(sample)
                self._give_way(sample)
        for sample in self._waiting:
            if sample.parked is not None and sample.parked.out in plan.moves:
                self._tier.drop(sample.parked)
                sample.parked = None

    def preempt(self, sample: Sample) -> None:
        """Let a running sample give up its memory and wait for its turn to come again."""
        self._trace.preempted(sample)
        self._give_way(sample)

    def _give_way(self, sample: Sample) -> None:
        self._running.remove(sample)
        if sample.seq.num_computed:
            sample.parked = self._tier.park(sample.seq)
        if sample.parked is not None:
            self._moves.append(sample.parked.out)
            self.num_parkings += 1
        self._free(sample)
        sample.num_preemptions += 1
        self.num_preemptions += 1
        insort(self._waiting, sample, key=RANK)

    def isolate(self, request_id: str | None) -> None:
        """Compute nothing but this request until called again; None: everything as ever.

        The others give up their memory, so it runs as if it had come to an idle scheduler.
        """
        self._trace.isolated(request_id)
        self._alone, self._stuck = request_id, None
        for sample in reversed(self._running.copy()):
            if request_id not in (None, sample.request.id):
                self._give_way(sample)

    def _make_way(self) -> None:
        """Samples that wait take the places of less urgent running ones, the last of them first."""
        while self._waiting and self._running and self._alone is None:
            last, first = self._running[-1].request.options, self._waiting[0].request.options
            if first.priority >= last.priority:
                break
            if self._start_next() is None:
                self._give_way(self._running[-1])

    def _shares(self) -> tuple[list[tuple[Sample, int]], StepBudget]:
        """Every running sample gets a token before any gets more; then in order of rank."""
        sharers = self._running[: self._limits.max_num_batched_tokens]
        load = Load(num_seqs=len(sharers))
        for sample in sharers:
            load = load.more(sample.seq.num_computed, 1)
        num_answers = sum(sample.num_generated > 0 for sample in sharers)
        budget = self._policy.begin(load, num_answers=num_answers)
        shares = [
            (sample, 1 + budget.take(sample.seq.num_computed + 1, sample.num_wanted - 1))
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
        token_ids = sample.tokens[start : start + num_new]
        capture_at = self._reuse.capture_at(sample, num_new)
        while True:
            try:
                r = self._caches.reserve(sample.seq, num_new, capture_at=capture_at)
                return ScheduledRow(sample, r, token_ids)
            except OutOfCache as missing:
                if self._reuse.evict(missing):
                    continue
                if capture_at:
                    capture_at = []  # a snapshot is worth no one's place
                    continue
                if scheduled and not missing.blocks:
                    return None
                victim = self._running[-1]
                assert all(row.sample is not victim for row in scheduled)
                self._give_way(victim)
                if victim is sample:
                    return None

    def _free(self, sample: Sample) -> None:
        self._caches.free(sample.seq)
        self._stuck = None

    def _start_next(self) -> Sample | None:
        """Let the first one that waits run, if all it has so far fits beside the others. None, and
        nothing has changed, if not; so nobody is pushed out, nor is anyone let past it."""
        if len(self._running) == self._limits.max_num_seqs:
            return None
        eligible = (s for s in self._waiting if self._alone in (None, s.request.id))
        sample = next(eligible, None)
        if sample is None or sample is self._stuck:
            return None
        if not self._start(sample):
            self._stuck = sample if self._running else None
            return None
        self._waiting.remove(sample)
        insort(self._running, sample, key=RANK)
        return sample

    def _start(self, sample: Sample) -> bool:
        """Bring it back from the host tier, or take from the prefix cache what it has, and make
        room there for the rest."""
        if sample.parked is None:
            self._reuse.start(sample)
        blocks = -(-len(sample.tokens) // self._caches.block_size) - len(sample.seq.blocks)
        while True:
            num_short = max(0, blocks - self._caches.blocks.num_free)
            has_slot = self._caches.slots.exclusive(sample.seq.slot) or self._caches.slots.num_free
            short = OutOfCache(num_short, int(not has_slot))
            if not (short.blocks or short.slots):
                break
            held = set(sample.seq.blocks).union(*(each.seq.blocks for each in self._running))
            could = self._caches.blocks.size - 1 - len(held) >= blocks  # else evict nothing in vain
            if not could or not self._reuse.evict(short):
                self._free(sample)
                return False
        if (parked := sample.parked) is not None:
            known = self._reuse.known_blocks(sample, parked.num_computed)
            sample.seq, move = self._tier.take_back(parked, known)
            self._moves.append(move)
            sample.parked = None
        return True

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
            if count == sample.num_wanted:
                first_answer = sample.num_generated == 0
                for index in range(sample.request.params.n) if first_answer else [sample.index]:
                    sampling.append(
                        SamplingRow(sample.request, index, len(logits_rows), sample.tokens)
                    )
                logits_rows.append(offset + count - 1)
            offset += count
        copies, self._copies = tuple(self._copies), []
        moves, self._moves = tuple(self._moves), []
        return StepPlan(
            tuple(rows),
            tuple(logits_rows),
            tuple(sampling),
            tuple(scoring),
            copies=copies,
            moves=moves,
            load=load,
        )

    def _fork(self, sample: Sample, index: int) -> Sample:
        """Another answer to the same prompt, whose memory is shared as far as it is equal."""
        twin = Sample(sample.request, index, list(sample.request.prompt), sample.arrival)
        twin.rolls_from = sample.rolls_from
        try:
            if len(self._running) == self._limits.max_num_seqs:
                raise OutOfCache(blocks=0, slots=1)
            twin.seq, copies = self._caches.fork(sample.seq)
        except OutOfCache:  # it computes the prompt itself, later
            insort(self._waiting, twin, key=RANK)
            return twin
        self._copies += copies
        insort(self._running, twin, key=RANK)
        return twin

    def _finish_reason(self, sample: Sample, token_id: int) -> FinishReason | None:
        if token_id in sample.request.stop_ids:
            return "stop"
        if sample.num_generated + 1 == sample.request.max_tokens:
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
