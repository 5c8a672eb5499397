"""Thousands of random operations on manager, prefix cache and host tier together, each compared
with an obvious model: who holds what is counted from scratch, what lies where is a list of tokens.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from thalweg.errors import OutOfCache
from thalweg.ids import NULL
from thalweg.memory.block_keys import BlockKeys
from thalweg.memory.manager import CacheManager, Sequence
from thalweg.memory.offload.host_tier import HostTier
from thalweg.memory.prefix import PrefixCache

if TYPE_CHECKING:
    from thalweg.memory.manager import BlockCopy
    from thalweg.memory.offload.host_tier import Move, Parked
    from thalweg.memory.pool import Pool

SIZE = 4
Tokens = tuple[int, ...]
Row = Tokens | None
"""What a row or a state was computed from; None: undefined."""


@dataclass(eq=False)
class Run:
    tokens: list[int]
    keys: BlockKeys = field(default_factory=BlockKeys)
    seq: Sequence = field(default_factory=Sequence)
    parked: Parked | None = None


class Machine:
    """Memory whose every cell says what it holds, and everybody who holds a part of it."""

    def __init__(self, rng: random.Random, num_blocks: int, num_slots: int) -> None:
        self.rng = rng
        self.caches = CacheManager(num_blocks, SIZE, num_slots)
        self.prefix = PrefixCache(self.caches)
        self.tier = HostTier(self.caches, num_blocks // 3, num_slots // 3)
        self.rows: dict[int, list[Row]] = {}
        self.states: dict[int, Row] = {NULL: ()}
        self.host_rows: dict[int, list[Row]] = {}
        self.host_states: dict[int, Row] = {}
        self.runs: list[Run] = []
        self.used: dict[bytes, int] = {}
        """When each known block was last used, by our own clock."""
        self.now = 0
        self.num: Counter[str] = Counter()

    # What a scheduler does

    def submit(self) -> None:
        """Few different tokens, so that many begin alike."""
        if len(self.runs) < 10:
            length = self.rng.randint(1, 40)
            self.runs.append(run := Run([self.rng.randint(0, 1) for _ in range(length)]))
            self.start(run)

    def start(self, run: Run) -> None:
        keys = run.keys.extend(run.tokens, SIZE)[: (len(run.tokens) - 1) // SIZE]
        match = self.prefix.match(keys)
        known = 0
        while known < len(keys) and keys[known] in self.used:
            known += 1
        assert [node.key for node in match.nodes] == keys[:known], "the longest that is known"
        run.seq = self.prefix.resume(match)
        self.now += 1
        self.used |= dict.fromkeys(keys[:known], self.now)
        assert run.seq.num_computed == match.num_resumable * SIZE
        assert run.seq.num_written == known * SIZE
        self.num["hits"] += bool(run.seq.num_computed)

    def compute(self) -> None:
        """A chunk with captures, or a token and its drafts, kept in part or aborted."""
        if (run := self.pick(parked=False)) is None:
            return
        seq, start = run.seq, run.seq.num_computed
        num_drafts = self.rng.choice([0, 0, 0, 1, 3]) if start >= len(run.tokens) - 4 else 0
        left = len(run.tokens) - start
        if not left:
            return
        num_new = left + num_drafts if num_drafts else min(self.rng.randint(1, 9), left)
        drafts = [self.rng.randint(0, 1) for _ in range(num_drafts)]
        tokens = [*run.tokens[: start + num_new - num_drafts], *drafts]
        ends = [i for i in range(num_new) if (start + i + 1) % SIZE == 0]
        captures = [i for i in ends if self.rng.random() < 0.4]
        before = self.picture()
        try:
            r = self.caches.reserve(seq, num_new, num_drafts=num_drafts, capture_at=captures)
        except OutOfCache as short:
            self.refused(short, before, run, num_new, num_drafts=num_drafts, captures=captures)
            return
        assert self.states[r.load_slot] == tuple(run.tokens[:start]), "another's state"
        self.write(run, r.store_slots, tokens)
        if self.rng.random() < 0.1:
            self.caches.abort(r)
            if r.load_slot in r.store_slots:
                self.caches.free(seq)
                self.start(run)
            return
        num_kept = num_new - self.rng.randint(0, num_drafts)
        run.tokens += drafts[: num_kept - num_new + num_drafts]
        snapshots = self.caches.commit(r, num_kept)
        keys = run.keys.extend(run.tokens, SIZE)
        fresh = keys[: seq.num_computed // SIZE]
        self.prefix.publish(seq, run.keys)
        self.now += 1
        self.used |= {key: self.now for key in fresh if key not in self.used}
        for snapshot in snapshots:
            self.prefix.publish_snapshot(snapshot, keys)
            self.now += 1
        self.num["steps"] += 1

    def grow(self) -> None:
        """A token is drawn: there is something to compute again."""
        run = self.pick(parked=False)
        if run is not None and len(run.tokens) < 48 and run.seq.num_computed == len(run.tokens):
            run.tokens.append(self.rng.randint(0, 1))

    def fork(self) -> None:
        run = self.pick(parked=False)
        if run is None or len(self.runs) >= 10:
            return
        before = self.picture()
        try:
            seq, copies = self.caches.fork(run.seq)
        except OutOfCache as short:
            assert (short.blocks, short.slots) == (1, 0) and not self.caches.blocks.num_free
            assert self.picture() == before
            self.num["refused"] += 1
            return
        self.copy(copies)
        twin = Run(list(run.tokens), seq=seq)
        self.runs.append(twin)

    def finish(self) -> None:
        """Or cancel: it may be anywhere."""
        if self.runs and self.rng.random() < 0.5:
            run = self.rng.choice(self.runs)
            self.runs.remove(run)
            if run.parked is not None:
                self.tier.drop(run.parked)
            self.caches.free(run.seq)

    def preempt(self) -> None:
        if (run := self.pick(parked=False)) is None or not run.seq.num_computed:
            return
        need, slots = len(run.seq.blocks), int(run.seq.slot != NULL)
        has_room = need <= self.tier.blocks.num_free and slots <= self.tier.slots.num_free
        run.parked = self.tier.park(run.seq)
        assert (run.parked is not None) == has_room
        if run.parked is not None:
            self.move(run.parked.out)
            self.num["parked"] += 1
        else:
            self.caches.free(run.seq)
            self.start(run)

    def come_back(self) -> None:
        if (run := self.pick(parked=True)) is None:
            return
        assert run.parked is not None
        keys = run.keys.extend(run.tokens, SIZE)[: run.parked.num_computed // SIZE]
        known = tuple(node.block for node in self.prefix.match(keys).nodes)
        before = self.picture()
        try:
            run.seq, move = self.tier.take_back(run.parked, known)
        except OutOfCache as short:
            assert self.picture() == before and (short.blocks or short.slots)
            self.num["refused"] += 1
            return
        self.move(move)
        run.parked = None

    def evict(self) -> None:
        """One at a time, so that it is clear who had to go."""
        if self.rng.random() < 0.5:
            blocks, slots = self.rng.randint(0, 4), self.rng.randint(0, 4)
            self.prefix.evict(blocks, slots)
            self.used = {key: self.used[key] for key in self.prefix._nodes}
            return
        nodes = self.prefix._nodes
        parents = {node.parent.key for node in nodes.values() if node.parent is not None}
        holders = self.holders()[0]
        free = [k for k, n in nodes.items() if k not in parents and holders[n.block] == 1]
        self.prefix.evict(1, 0)
        gone = [key for key in self.used if key not in self.prefix._nodes]
        if self.caches.blocks.num_free:
            assert len(gone) <= 1
        assert gone == ([min(free, key=self.used.__getitem__)] if free else [])
        for key in gone:
            del self.used[key]

    # What memory does

    def write(self, run: Run, stores: tuple[int, ...], tokens: list[int]) -> None:
        seq = run.seq
        holders = self.holders(reserved=run)[0]
        for position in range(seq.num_computed, seq.num_computed + len(stores)):
            block = seq.blocks[position // SIZE]
            if position >= seq.num_written:
                assert holders[block] == 1, "law 2"
                rows = self.rows.setdefault(block, [None] * SIZE)
                rows[position % SIZE] = tuple(tokens[: position + 1])
            row = self.rows[block][position % SIZE]
            assert row == tuple(tokens[: position + 1]), "another's row"
        for i, slot in enumerate(stores):
            if slot >= 0:
                self.states[slot] = tuple(tokens[: seq.num_computed + i + 1])

    def copy(self, copies: tuple[BlockCopy, ...]) -> None:
        for c in copies:
            self.rows[c.dst] = [*self.rows[c.src][: c.num_rows], *[None] * (SIZE - c.num_rows)]

    def move(self, move: Move) -> None:
        is_out = "host" in move.direction.value
        for pair in move.blocks:
            if is_out:
                self.host_rows[pair.host] = list(self.rows[pair.pool])
            else:
                self.rows[pair.pool] = list(self.host_rows[pair.host])
        for pair in move.slots:
            if is_out:
                self.host_states[pair.host] = self.states[pair.pool]
            else:
                self.states[pair.pool] = self.host_states[pair.host]

    # What must hold

    def pick(self, *, parked: bool) -> Run | None:
        runs = [run for run in self.runs if (run.parked is not None) == parked]
        return self.rng.choice(runs) if runs else None

    def holders(self, reserved: Run | None = None) -> tuple[Counter[int], Counter[int]]:
        nodes = self.prefix._nodes.values()
        blocks = Counter(b for run in self.runs for b in run.seq.blocks)
        blocks.update(node.block for node in nodes)
        slots = Counter(run.seq.slot for run in self.runs)
        slots.update(node.slot for node in nodes)
        del slots[NULL]
        return blocks, slots

    def picture(self) -> object:
        pools = (self.caches.blocks, self.caches.slots, self.tier.blocks, self.tier.slots)
        seqs = [
            (r.seq.num_computed, r.seq.num_written, list(r.seq.blocks), r.seq.slot)
            for r in self.runs
        ]
        return [(list(p._free), dict(p._refs)) for p in pools], seqs, dict(self.used)

    def refused(
        self,
        short: OutOfCache,
        before: object,
        run: Run,
        num_new: int,
        *,
        num_drafts: int,
        captures: list[int],
    ) -> None:
        """Rightly, by so much, and with nothing changed."""
        assert self.picture() == before
        held = self.holders()[1]
        in_place = run.seq.slot != NULL and held[run.seq.slot] == 1
        early = sum(i < num_new - num_drafts - 1 for i in captures)
        blocks = -(-(run.seq.num_computed + num_new) // SIZE) - len(run.seq.blocks)
        slots = num_drafts + early + (not in_place)
        assert short.blocks == max(0, blocks - self.caches.blocks.num_free)
        assert short.slots == max(0, slots - self.caches.slots.num_free)
        assert short.blocks or short.slots
        self.num["refused"] += 1
        self.prefix.evict(short.blocks, short.slots)
        self.used = {key: self.used[key] for key in self.prefix._nodes}

    def check(self) -> None:
        blocks, slots = self.holders()
        self._check_pool(self.caches.blocks, blocks)
        self._check_pool(self.caches.slots, slots)
        parked = [run.parked for run in self.runs if run.parked is not None]
        self._check_pool(self.tier.blocks, Counter(b for p in parked for b in p.blocks))
        self._check_pool(self.tier.slots, Counter(p.slot for p in parked if p.slot != NULL))
        for run in self.runs:
            seq = run.seq
            assert not seq.reserved
            num_rows = max(seq.num_computed, seq.num_written)
            assert len(seq.blocks) == -(-num_rows // SIZE)
            for position in range(num_rows):
                row = self.rows[seq.blocks[position // SIZE]][position % SIZE]
                assert row == tuple(run.tokens[: position + 1]), "history was lost"
            assert self.states[seq.slot] == tuple(run.tokens[: seq.num_computed])
        assert {*self.used} == {*self.prefix._nodes}
        assert self.prefix.num_snapshots == sum(n.slot != NULL for n in self.prefix._nodes.values())
        for node in self.prefix._nodes.values():
            last = self.rows[node.block][-1]
            assert last is not None
            if node.slot != NULL:
                assert self.states[node.slot] == last, "a snapshot was written to"

    @staticmethod
    def _check_pool(pool: Pool, held: Counter[int]) -> None:
        assert dict(pool._refs) == dict(held), "counts differ from holders"
        assert sorted([*pool._free, *held]) == list(range(1, pool.size))

    def close(self) -> None:
        for run in self.runs:
            if run.parked is not None:
                self.tier.drop(run.parked)
            self.caches.free(run.seq)
        self.prefix.evict(self.caches.blocks.size, self.caches.slots.size)
        for pool in (self.caches.blocks, self.caches.slots, self.tier.blocks, self.tier.slots):
            assert pool.num_used == 0


def operate(seed: int, num_operations: int, num_blocks: int, num_slots: int) -> Counter[str]:
    machine = Machine(random.Random(seed), num_blocks, num_slots)
    operations = (
        *[machine.compute] * 6,
        *[machine.grow] * 4,
        *[machine.submit] * 2,
        machine.fork,
        machine.finish,
        machine.preempt,
        machine.come_back,
        machine.evict,
    )
    for _ in range(num_operations):
        machine.rng.choice(operations)()
        machine.check()
    machine.close()
    return machine.num


POOLS = [(60, 30), (20, 30), (60, 8), (14, 8)]


@pytest.mark.parametrize(("num_blocks", "num_slots"), POOLS)
def test_any_operations_on_little_memory(num_blocks: int, num_slots: int) -> None:
    """S7, S14, M8, M9"""
    num = operate(0, 2500, num_blocks, num_slots)
    assert num["steps"] > 200 and num["hits"] > 0 and num["parked"] > 10
    assert num["refused"] > 20 or (num_blocks, num_slots) == (60, 30)


@pytest.mark.slow
@pytest.mark.parametrize(("num_blocks", "num_slots"), POOLS)
def test_20000_operations(num_blocks: int, num_slots: int) -> None:
    operate(1, 20_000, num_blocks, num_slots)
