"""The laws of memory, checked at every step of anything a scheduler might do.

A `World` bundles manager, pools and a model. Whatever is free holds NaN. Every step is compared
with the oracle bit by bit (law 1), every byte that a pass had no right to write with its value
before (law 2), and the manager's counts with who really holds what (law 4).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import thalweg.batch
import thalweg.memory.manager
from harness import Oracle, Tiny, bits, hash_model, oracle, poison, same_bits
from thalweg.config import Rollback
from thalweg.errors import OutOfCache
from thalweg.ids import NULL, SKIP
from thalweg.memory.storage import CacheStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from thalweg.batch import ForwardBatch
    from thalweg.memory.pool import Pool
    from thalweg.memory.storage import LayerCache


LOG_SIZE = 8


@dataclass(frozen=True, slots=True)
class Code:
    """The modules under test; mutants are put in here."""

    manager: ModuleType = thalweg.memory.manager
    batch: ModuleType = thalweg.batch


@dataclass(frozen=True, slots=True)
class Specification:
    """What rows are compared with, and how: bit by bit unless said otherwise."""

    oracle: Oracle
    agrees: Callable[[Tensor, Tensor], bool] = same_bits


class Outcome(Enum):
    COMMIT = "commit"
    ABORT_UNRUN = "abort before the pass"
    ABORT = "abort after the pass"
    CRASH = "the pass dies half-way: what it may write holds nonsense, then abort"


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence does in a step. Numbers are clamped to what is legal."""

    index: int
    tokens: tuple[int, ...]
    num_drafts: int = 0
    num_kept_drafts: int = 0
    capture: bool = False
    """After every new token whose end is a block boundary."""
    outcome: Outcome = Outcome.COMMIT


Rows = list[int]


@dataclass(slots=True, eq=False)
class Entry:
    """A sequence or a snapshot, and the tokens it stands for."""

    held: Any  # a Sequence or a Snapshot, of the code under test
    history: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    """Tokens of the blocks in `resume(written=...)`: they are what must come next."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One part of a step under way."""

    entry: Entry
    reservation: Any
    tokens: list[int]
    part: Part


class World:
    def __init__(
        self,
        tiny: Tiny,
        num_blocks: int = 64,
        num_slots: int = 64,
        code: Code | None = None,
        specification: Specification | None = None,
        *,
        rollback: Rollback = Rollback.CHECKPOINT,
    ) -> None:
        self.code = code or Code()
        self.specification = specification or Specification(oracle(tiny))
        self.tiny, self.block_size = tiny, tiny.block_size
        self.manager = self.code.manager.CacheManager(
            num_blocks, self.block_size, num_slots, rollback
        )
        self.rollback, self.log_size = rollback, LOG_SIZE if rollback.has_log else 0
        self.storage = CacheStorage(
            tiny.cache_specs,
            num_blocks,
            num_slots,
            block_size=self.block_size,
            log_size=self.log_size,
        )
        poison(self.storage)
        self.seqs: list[Entry] = []
        self.snaps: list[Entry] = []
        self.num_refused = 0

    @property
    def oracle(self) -> Oracle:
        return self.specification.oracle

    # What a scheduler does

    def start(self, tokens: Sequence[int] = ()) -> Entry:
        """A new sequence, with some history if wanted."""
        entry = Entry(self.code.manager.Sequence())
        self.seqs.append(entry)
        if tokens:
            self.run(entry, tokens)
        return entry

    def run(self, entry: Entry, tokens: Sequence[int], *, capture: bool = False) -> list[Entry]:
        """One sequence alone, no drafts. Returns the captured snapshots."""
        return self.step([Part(self.seqs.index(entry), tuple(tokens), capture=capture)])

    def verify(self, entry: Entry, tokens: Sequence[int], num_kept: int) -> list[Entry]:
        """One certain token, the rest drafts."""
        part = Part(self.seqs.index(entry), tuple(tokens), len(tokens) - 1, num_kept - 1)
        return self.step([part])

    def fork(self, entry: Entry) -> Entry | None:
        """None: out of cache, and nothing changed."""
        before = self.bookkeeping()
        try:
            twin, copies = self.manager.fork(entry.held)
        except OutOfCache as e:
            self._check_refusal(e, before, blocks=1, slots=0)
            return None
        self.storage.copy(copies)
        self.seqs.append(Entry(twin, list(entry.history), list(entry.known)))
        self.check()
        return self.seqs[-1]

    def snapshot(self, entry: Entry) -> Entry:
        self.snaps.append(Entry(self.manager.snapshot(entry.held), list(entry.history)))
        self.check()
        return self.snaps[-1]

    def resume(self, snap: Entry, donor: Entry | None = None, num_written: int = 99) -> Entry:
        """`donor` has a deeper history with the same beginning; its full blocks are shared."""
        size, n = self.block_size, len(snap.history)
        written: list[int] = []
        known: list[int] = []
        if donor is not None:
            assert donor.history[:n] == snap.history
            end = min(len(donor.history) // size, n // size + num_written)
            written = list(donor.held.blocks[n // size : end])
            known = donor.history[n : n + len(written) * size]
        self.seqs.append(Entry(self.manager.resume(snap.held, written), list(snap.history), known))
        self.check()
        return self.seqs[-1]

    def drop(self, snap: Entry) -> None:
        self.snaps.remove(snap)
        self.manager.drop(snap.held)
        self.check()

    def free(self, entry: Entry) -> None:
        self.seqs.remove(entry)
        self.manager.free(entry.held)
        assert entry.held.blocks == [] and entry.held.slot == NULL
        self.check()

    def step(self, parts: Sequence[Part], padding: Sequence[int] = ()) -> list[Entry]:
        """A pass of several sequences, each checked. Returns all captured snapshots."""
        runs = [
            r
            for p in {p.index % len(self.seqs): p for p in parts}.values()
            if (r := self._reserve(p))
        ]
        for r in [r for r in runs if r.part.outcome is Outcome.ABORT_UNRUN]:
            runs.remove(r)
            before = bits_of(self.storage)
            self.manager.abort(r.reservation)
            assert same(before, bits_of(self.storage))
        self.check({id(r.entry): r for r in runs})
        if runs or padding:
            self._pass(runs, padding)
        captured = [snap for r in runs for snap in self._end(r)]
        for r in runs:
            self._fold(r.entry)
        self.check()
        return captured

    def state(self, entry: Entry) -> list[LayerCache]:
        """What layers remember of a sequence or a snapshot, up to date."""
        if not entry.held.num_pending:
            slot = entry.held.slot
        else:
            slot = self.manager.slots.acquire()
            make = self.code.batch.SequenceInput
            seq = make((), 0, (), entry.held.slot, ())
            seq = replace(seq, num_pending=entry.held.num_pending, fold_slot=slot)
            self.tiny.model(self._batch([seq]), self.storage.layers)
            self.manager.slots.release(slot)
        return [
            {t.name: layer[t.name][slot].clone() for t in spec.per_sequence}
            for spec, layer in zip(self.tiny.cache_specs, self.storage.state, strict=True)
        ]

    def close(self) -> None:
        """Everything ends; law 4."""
        for entry in [*self.seqs]:
            self.free(entry)
        for snap in [*self.snaps]:
            self.drop(snap)
        assert self.manager.blocks.num_used == self.manager.slots.num_used == 0
        assert self.manager.blocks.num_free == self.manager.blocks.size - 1
        assert self.manager.slots.num_free == self.manager.slots.size - 1

    # A pass

    def _reserve(self, part: Part) -> Run | None:
        entry = self.seqs[part.index % len(self.seqs)]
        seq, size, start = entry.held, self.block_size, len(entry.history)
        tokens = [*entry.known[: len(part.tokens)], *part.tokens[len(entry.known) :]]
        num_drafts = min(part.num_drafts, len(tokens) - 1)
        ends = [i for i in range(len(tokens)) if (start + i + 1) % size == 0]
        captures = ends if part.capture else []
        before = self.bookkeeping()
        try:
            r = self.manager.reserve(seq, len(tokens), num_drafts=num_drafts, capture_at=captures)
        except OutOfCache as e:
            certain = len(tokens) - num_drafts - 1
            num_spare = 0 if self.rollback.has_log else num_drafts
            has_own = seq.slot != NULL and self.holders()[1][seq.slot] == 1
            self._check_refusal(
                e,
                before,
                blocks=max(0, -(-(start + len(tokens)) // size) - len(seq.blocks)),
                slots=num_spare + sum(i < certain for i in captures) + (not has_own),
            )
            return None
        return Run(entry, r, tokens, part)

    def _pass(self, runs: list[Run], padding: Sequence[int]) -> None:
        make = self.code.batch.SequenceInput
        inputs = [
            make(
                r.tokens,
                len(r.entry.history),
                r.entry.held.blocks,
                r.reservation.load_slot,
                r.reservation.store_slots,
                r.entry.held.num_written,
                r.reservation.num_pending,
                r.reservation.num_logged,
            )
            for r in runs
        ]
        inputs = [
            *map(make.padding, padding[:1]),
            *inputs,
            *map(make.padding, padding[1:]),
        ]
        num_rows = sum(len(i.token_ids) for i in inputs)
        batch = self._batch(inputs)
        assert batch.shape.num_tokens == len(batch.token_ids) == num_rows
        before, owned = bits_of(self.storage), [self._writable(r) for r in runs]
        # Also a write of the same bits is one: another pass may be reading them.
        rows, stores = batch.paged.slot_mapping.tolist(), batch.state.store_slots.tolist()
        assert {*rows} - {SKIP} == {row for kv, _ in owned for row in kv}, "law 2: rows"
        assert {*stores} - {SKIP} == {slot for _, slots in owned for slot in slots}, "law 2: slots"
        hidden = self.tiny.model(batch, self.storage.layers)
        self._check_exclusive(before, owned)
        bos = sum(padding[:1])
        for r in runs:
            expected = self.oracle.rows([*r.entry.history, *r.tokens])[-len(r.tokens) :]
            rows_agree = self.specification.agrees(hidden[bos : bos + len(r.tokens)], expected)
            assert rows_agree, "law 1"
            bos += len(r.tokens)
            if r.part.outcome is Outcome.CRASH:
                self._scribble(self._writable(r))

    def _batch(self, inputs: Sequence[Any]) -> ForwardBatch:
        batch: ForwardBatch = self.code.batch.ForwardBatch.ragged(
            inputs,
            range(sum(len(i.token_ids) for i in inputs)),
            block_size=self.block_size,
            log_size=self.log_size,
        )
        return batch

    def _fold(self, entry: Entry) -> None:
        """What is to be done at once, and that it writes to the own slot alone."""
        for fold in self.manager.fold(entry.held):
            assert fold.slot == entry.held.slot and not entry.held.num_pending
            batch = self._batch([self.code.batch.SequenceInput.fold(fold.slot, fold.num_pending)])
            before = bits_of(self.storage)
            self.tiny.model(batch, self.storage.layers)
            self._check_exclusive(before, [([], [fold.slot])])

    def _end(self, r: Run) -> list[Entry]:
        entry, new, part = r.entry, r.reservation, r.part
        if part.outcome is not Outcome.COMMIT:
            overwritten = new.load_slot in new.store_slots
            self.manager.abort(new)
            if overwritten:  # rebuilt from nothing: the same object may start again
                self.manager.free(entry.held)
                entry.history, entry.known = [], []
            return []
        num_drafts = min(part.num_drafts, len(r.tokens) - 1)
        num_kept = len(r.tokens) - num_drafts + min(part.num_kept_drafts, num_drafts)
        ends = [n for n in (i + 1 for i in new.capture_at) if n <= num_kept]
        snapshots = self.manager.commit(new, num_kept)
        captured = [
            Entry(s, [*entry.history, *r.tokens[:n]]) for s, n in zip(snapshots, ends, strict=True)
        ]
        self.snaps += captured
        entry.history += r.tokens[:num_kept]
        entry.known = entry.known[num_kept:]
        assert entry.held.num_computed == len(entry.history)
        return captured

    # The laws

    def holders(self) -> tuple[Counter[int], Counter[int]]:
        """Who holds each block and each slot, counted from outside."""
        entries = [*self.seqs, *self.snaps]
        blocks = Counter(b for e in entries for b in e.held.blocks)
        slots = Counter(e.held.slot for e in entries if e.held.slot != NULL)
        return blocks, slots

    def bookkeeping(self) -> object:
        """All that the manager and its sequences know, for comparison by value."""
        pools = [
            (list(_free(p)), dict(_refs(p))) for p in (self.manager.blocks, self.manager.slots)
        ]
        seqs = [
            (s.num_computed, s.num_written, list(s.blocks), s.slot, s.num_pending, s.reserved)
            for s in (e.held for e in self.seqs)
        ]
        return pools, seqs, [e.held for e in self.snaps]

    def check(self, runs: dict[int, Run] | None = None) -> None:
        """Counts equal holders, nothing free is held, free memory is poisoned."""
        blocks, slots = self.holders()
        for r in (runs or {}).values():
            new = r.reservation
            slots.update({*new.store_slots} - {SKIP, NULL, new.load_slot})
        for pool, held in ((self.manager.blocks, blocks), (self.manager.slots, slots)):
            assert dict(_refs(pool)) == dict(held), "law 4: counts differ from holders"
            assert sorted([*_free(pool), *held]) == list(range(1, pool.size))
            assert pool.num_used == len(held)
        for e in [*self.seqs, *self.snaps]:
            assert e.held.num_computed == len(e.history)
            num_rows = len(e.history) + len(e.known)
            if id(e) not in (runs or {}):
                assert len(e.held.blocks) == -(-num_rows // self.block_size)
        free_blocks = sorted(_free(self.manager.blocks))
        for layer in self.storage.paged:
            for tensor in layer.values():
                tensor.unflatten(0, (-1, self.block_size))[free_blocks] = torch.nan
        for layer in self.storage.state:
            for tensor in layer.values():
                tensor[sorted(_free(self.manager.slots))] = torch.nan

    def _check_refusal(self, e: OutOfCache, before: object, *, blocks: int, slots: int) -> None:
        assert self.bookkeeping() == before, "a refusal changed something"
        assert e.blocks == max(0, blocks - self.manager.blocks.num_free)
        assert e.slots == max(0, slots - self.manager.slots.num_free)
        assert e.blocks or e.slots, "refused though there was room"
        self.num_refused += 1

    def _writable(self, r: Run) -> tuple[Rows, Rows]:
        """KV rows and slots that this part of the pass may write."""
        blocks, slots = self.holders()
        seq, size, start = r.entry.held, self.block_size, len(r.entry.history)
        positions = range(start + len(r.entry.known), start + len(r.tokens))
        rows = [
            seq.blocks[p // size] * size + p % size
            for p in positions
            if blocks[seq.blocks[p // size]] == 1
        ]
        stores = {*r.reservation.store_slots} - {SKIP}
        return rows, sorted(s for s in stores if slots[s] <= (s == r.reservation.load_slot))

    def _check_exclusive(self, before: list[torch.Tensor], owned: list[tuple[Rows, Rows]]) -> None:
        rows = [row for kv, _ in owned for row in kv]
        stores = [slot for _, slots in owned for slot in slots]
        after = bits_of(self.storage)
        for old, new, mine in zip(before, after, self._indices(rows, stores), strict=True):
            new[mine] = old[mine]
            assert torch.equal(old, new), "law 2: a pass wrote what it does not hold alone"

    def _scribble(self, writable: tuple[Rows, Rows]) -> None:
        tensors = [t for layer in self.storage.layers for t in layer.values()]
        for tensor, mine in zip(tensors, self._indices(*writable), strict=True):
            tensor[mine] = torch.inf

    def _indices(self, rows: Rows, stores: Rows) -> Iterator[Rows]:
        for paged, state in zip(self.storage.paged, self.storage.state, strict=True):
            yield from [rows] * len(paged)
            yield from [stores] * len(state)


def _free(pool: Pool) -> list[int]:
    return pool._free


def _refs(pool: Pool) -> Counter[int]:
    return pool._refs


def bits_of(storage: CacheStorage) -> list[torch.Tensor]:
    """A copy of every pool's bits, in the order of `storage.layers`."""
    return [bits(t).clone() for layer in storage.layers for t in layer.values()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def hash_world(
    num_blocks: int = 64,
    num_slots: int = 64,
    code: Code | None = None,
    rollback: Rollback = Rollback.CHECKPOINT,
) -> World:
    return World(hash_model(), num_blocks, num_slots, code, rollback=rollback)
