"""The engine's step without tensors: a scheduler whose model is a hash.

`Driver` checks every plan, and at the end that each answer is what its history says, however often
the sample was chunked, preempted, forked or rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thalweg.config import RequestOptions, SamplingParams
from thalweg.memory.manager import CacheManager
from thalweg.memory.offload.host_tier import HostTier
from thalweg.scheduler.places import RANK
from thalweg.scheduler.plan import StepPlan, StepResult, Token
from thalweg.scheduler.request import Request
from thalweg.scheduler.reuse import ReusePolicy
from thalweg.scheduler.scheduler import Scheduler, SchedulerLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.scheduler.request import Sample

BLOCK = 4
STOP = 0


@dataclass(frozen=True)
class Ask:
    """A request, and when it comes and goes."""

    length: int = 5
    n: int = 1
    max_tokens: int = 3
    arrives: int = 0
    scored: bool = False
    stops: bool = False
    """STOP ends its answers."""
    priority: int = 0
    leaves: int | None = None
    """The step before which it is aborted."""
    leaves_in_flight: bool = False
    """Aborted while that step is computed, rather than before it."""
    cut: int | None = None
    """Its answers end at this many tokens, because of what their text says."""

    def request(self, name: str) -> Request:
        params = SamplingParams(n=self.n, prompt_logprobs=0 if self.scored else None)
        prompt = tuple((int(name) * 7 + p * 3) % 50 + 1 for p in range(self.length))
        return Request(
            name,
            prompt,
            params,
            0,
            self.max_tokens,
            frozenset({STOP} if self.stops else ()),
            options=RequestOptions(priority=self.priority),
        )


def next_token(history: Sequence[int], index: int) -> int:
    """Now and then it is STOP."""
    h = index
    for token in history:
        h = (h * 31 + token + 7) % 10_007
    return h % 23


def answer(request: Request, index: int, cut: int | None) -> list[int]:
    history = list(request.prompt)
    while True:
        history.append(next_token(history, index))
        made = history[len(request.prompt) :]
        if made[-1] in request.stop_ids or len(made) == request.max_tokens or len(made) == cut:
            return made


@dataclass
class Driver:
    num_blocks: int = 64
    max_num_seqs: int = 8
    budget: int = 16
    reuses: bool = False
    """With a prefix cache."""
    num_host_blocks: int = 1
    forced: int | None = None
    """After every so many steps all that run are preempted."""
    asks: dict[str, Ask] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    answers: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    ended: set[tuple[str, int]] = field(default_factory=set)
    scored: dict[str, list[int]] = field(default_factory=dict)
    unstarted: set[str] = field(default_factory=set)
    first: Sample | None = None
    """The one that arrived earliest of those that run."""
    num_computed: int = 0

    def __post_init__(self) -> None:
        self.caches = CacheManager(self.num_blocks, BLOCK, self.max_num_seqs + 1)
        self.tier = HostTier(self.caches, self.num_host_blocks, self.num_host_blocks)
        self.scheduler = Scheduler(
            self.caches,
            SchedulerLimits(self.max_num_seqs, self.budget),
            ReusePolicy(self.reuses, snapshot_interval=2 * BLOCK),
            tier=self.tier,
        )
        self.num_steps = 0

    def add(self, ask: Ask) -> str:
        name = str(len(self.requests))
        self.asks[name] = ask
        self.requests[name] = ask.request(name)
        self.scored[name] = []
        self.unstarted.add(name)
        self.scheduler.add(self.requests[name])
        return name

    def abort(self, name: str) -> None:
        self.scheduler.abort(name)
        self.unstarted.discard(name)
        self.ended |= {(name, index) for index in range(self.asks[name].n)}

    def step(self, *, fails: bool = False, leave: Sequence[str] = ()) -> StepPlan:
        """`leave` are aborted after the step was planned."""
        if self.forced and self.num_steps % self.forced == self.forced - 1:
            for sample in reversed(self.scheduler._running.copy()):
                self.scheduler.preempt(sample)
            self.first = None
        self.num_steps += 1
        plan = self.scheduler.schedule()
        self.check(plan)
        for name in leave:
            self.abort(name)
        if fails:
            self.scheduler.rollback(plan)
            self.first = None
            return plan
        self.first = min((row.sample for row in plan.rows), key=RANK, default=None)
        for row in plan.rows:
            self.num_computed += len(row.token_ids)
        for score in plan.scoring:
            if score.sample.has_ended:
                continue
            self.scored[score.sample.request.id].append(score.token_id)
        drawn = [Token(next_token(row.history, row.sample_index)) for row in plan.sampling]
        result = StepResult(tuple(drawn), tuple(Token(s.token_id) for s in plan.scoring))
        for new in self.scheduler.update(plan, result):
            key = (new.sample.request.id, new.sample.index)
            assert key not in self.ended, "a token came after the end"
            self.answers.setdefault(key, []).append(new.token.id)
            if new.finish_reason is not None:
                self.ended.add(key)
            elif len(self.answers[key]) == self.asks[key[0]].cut:
                self.ended.add(key)
                self.scheduler.finish(new.sample)
        return plan

    def check(self, plan: StepPlan) -> None:
        assert bool(plan.rows) == self.scheduler.has_work, "no progress"
        counts = [len(row.token_ids) for row in plan.rows]
        assert sum(counts) <= self.budget
        assert self.scheduler.num_running <= self.max_num_seqs
        if self.first and (self.first.request.id, self.first.index) not in self.ended:
            ranks = [row.sample.rank for row in plan.rows]
            assert min(ranks) <= self.first.rank, "the earliest always goes on"
        assert len({id(row.sample) for row in plan.rows}) == len(plan.rows)
        ends: dict[int, object] = {}
        offset = 0
        for row, count in zip(plan.rows, counts, strict=True):
            start = row.sample.seq.num_computed
            assert count >= 1
            assert list(row.token_ids) == row.sample.tokens[start : start + count]
            assert row.reservation.num_new == count and row.reservation.seq is row.sample.seq
            offset += count
            if count == row.sample.num_wanted:
                ends[offset - 1] = row.sample
            name = row.sample.request.id
            if name in self.unstarted:
                running = {sample.request.id for sample in self.scheduler._running}
                for other in self.unstarted - running:
                    is_urgent = self.asks[other].priority <= self.asks[name].priority
                    assert int(other) > int(name) or not is_urgent, "a later request began first"
                self.unstarted.remove(name)
        assert list(plan.logits_rows) == sorted({*plan.logits_rows})
        assert all(0 <= row < offset for row in plan.logits_rows)
        for draw in plan.sampling:
            sample = ends[plan.logits_rows[draw.logits_row]]  # only of rows that caught up
            assert draw.history is sample.tokens  # type: ignore[attr-defined]
        assert len({(d.request.id, d.sample_index) for d in plan.sampling}) == len(plan.sampling)
        assert {plan.logits_rows[draw.logits_row] for draw in plan.sampling} == {*ends}

    def assert_done(self) -> None:
        """M8, and what everybody got."""
        assert not self.scheduler.has_work
        self.scheduler.prefix_cache.evict(self.caches.blocks.size, self.caches.slots.size)
        for pool in (self.caches.blocks, self.caches.slots, self.tier.blocks, self.tier.slots):
            assert pool.num_used == 0 and pool.num_free == pool.size - 1
        for name, request in self.requests.items():
            ask = self.asks[name]
            for index in range(ask.n):
                want = answer(request, index, ask.cut)
                got = self.answers.get((name, index), [])
                assert got == want if ask.leaves is None else got == want[: len(got)]
            if ask.scored and ask.leaves is None:
                assert self.scored[name] == list(request.prompt[1:]), "scored once each, in order"
            elif not ask.scored:
                assert self.scored[name] == []


def drive(driver: Driver, asks: Sequence[Ask], fails: frozenset[int] = frozenset()) -> Driver:
    coming = sorted(asks, key=lambda ask: ask.arrives)
    leaving: dict[tuple[int, bool], list[str]] = {}
    most = 50 + (100 if driver.forced else 8) * sum(
        ask.length + ask.n * (ask.length + ask.max_tokens) for ask in asks
    )
    for i in range(most):
        while coming and coming[0].arrives <= i:
            ask = coming.pop(0)
            name = driver.add(ask)
            if ask.leaves is not None:
                when = (max(ask.leaves, i), ask.leaves_in_flight)
                leaving.setdefault(when, []).append(name)
        for name in leaving.pop((i, False), []):
            driver.abort(name)
        driver.step(fails=i in fails, leave=leaving.pop((i, True), ()))
        if not driver.scheduler.has_work and not coming:
            driver.assert_done()
            return driver
    raise AssertionError("starved")
