"""Who owns cache memory. Host bookkeeping only: ids and counts, no tensors, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thalweg.config import Rollback
from thalweg.errors import OutOfCache
from thalweg.ids import NULL, SKIP
from thalweg.memory.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True, eq=False)
class Sequence:
    """Host record of one sequence's place in the caches. Only `CacheManager` changes it."""

    num_computed: int = 0
    """Tokens that are history: their KV rows and the state after them are in the caches."""
    num_written: int = 0
    """Positions below this have KV rows in shared blocks, even where the state is not there yet."""
    blocks: list[int] = field(default_factory=list)
    slot: int = NULL
    num_pending: int = 0
    """Tokens that the state in the slot is behind: their inputs are the first rows of its log."""
    reserved: bool = False
    """A reservation is open; until it is committed or aborted nothing else may happen."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A resumable prefix that ends on a block boundary: full blocks and the state at their end."""

    num_computed: int
    blocks: tuple[int, ...]
    slot: int
    num_pending: int = 0


@dataclass(frozen=True, slots=True)
class Fold:
    """The state in a slot, to be brought past the first rows of its log before the next pass."""

    slot: int
    num_pending: int


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Memory set aside for one sequence in one pass. Ends in `commit` or `abort`, once."""

    seq: Sequence
    num_drafts: int
    load_slot: int
    num_pending: int
    """Logged tokens that the state in `load_slot` is behind."""
    store_slots: tuple[int, ...]
    """One per new token; SKIP where the state after it is not wanted, or is in the log."""
    capture_at: tuple[int, ...]
    """Indices of new tokens after which a snapshot is wanted."""

    @property
    def num_new(self) -> int:
        return len(self.store_slots)

    @property
    def num_logged(self) -> int:
        """Drafts at the end whose inputs go to the log of the slot that is stored to before."""
        return self.num_drafts if self.store_slots[-1] == SKIP else 0

    def state_after(self, i: int) -> tuple[int, int]:
        """Where the state after new token i is: a slot, and the logged tokens it is behind."""
        num_pending = max(0, i + 1 - (self.num_new - self.num_logged))
        return self.store_slots[i - num_pending], num_pending


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """The first `num_rows` rows of block `src`, to be copied to `dst` before the next pass."""

    src: int
    dst: int
    num_rows: int


class CacheManager:
    """Hands out block and slot ids and takes them back; every id is freed here and nowhere else.

    `num_blocks` and `num_slots` count id 0, which is reserved. One slot id serves all recurrent
    layers of a sequence. A model without recurrent layers gets slot ids too: they cost nothing.
    With a `rollback` that has a log, a slot may be behind by tokens that are logged in it: forks
    and snapshots share both, and the next pass folds them on its way.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_slots: int,
        rollback: Rollback = Rollback.CHECKPOINT,
    ) -> None:
        self.block_size, self.rollback = block_size, rollback
        self.blocks, self.slots = Pool(num_blocks), Pool(num_slots)

    def reserve(
        self,
        seq: Sequence,
        num_new: int,
        *,
        num_drafts: int = 0,
        capture_at: Iterable[int] = (),
        leave_slots: int = 0,
    ) -> Reservation:
        """Set aside blocks for `num_new` tokens, and a slot for each that may be the last one kept;
        with a log, one slot for all of these.

        The last `num_drafts` tokens may be rejected at commit. `capture_at` are indices into the
        new tokens whose end is a block boundary; commit hands out a snapshot for each one kept.
        `leave_slots` have to stay free. All or nothing: `OutOfCache` changes nothing.
        """
        assert not seq.reserved and 0 <= num_drafts < num_new
        captures = tuple(sorted(set(capture_at)))
        assert all((seq.num_computed + i + 1) % self.block_size == 0 for i in captures)
        certain = num_new - num_drafts - 1  # index of the last token that is kept in any case
        in_place = self.slots.exclusive(seq.slot)
        early = [i for i in captures if i < certain]  # later ones have a store slot anyway
        num_blocks = max(0, self._blocks_for(seq.num_computed + num_new) - len(seq.blocks))
        num_spare = 0 if self.rollback.has_log else num_drafts
        num_slots = num_spare + len(early) + (not in_place)
        short = OutOfCache(
            max(0, num_blocks - self.blocks.num_free),
            max(0, num_slots + leave_slots - self.slots.num_free),
        )
        if short.blocks or short.slots:
            raise short
        seq.blocks += [self.blocks.acquire() for _ in range(num_blocks)]
        stores = [SKIP] * certain
        for i in early:
            stores[i] = self.slots.acquire()
        stores.append(seq.slot if in_place else self.slots.acquire())
        stores += [self.slots.acquire() for _ in range(num_spare)]
        stores += [SKIP] * (num_drafts - num_spare)
        seq.reserved = True
        return Reservation(seq, num_drafts, seq.slot, seq.num_pending, tuple(stores), captures)

    def commit(self, r: Reservation, num_kept: int) -> tuple[Snapshot, ...]:
        """Make the first `num_kept` new tokens history; forget the rest as if they had never run.

        `num_new - num_drafts <= num_kept <= num_new`. Returns a snapshot for each capture among
        the kept tokens, in order; the caller owns them.
        """
        seq = r.seq
        assert seq.reserved and r.num_new - r.num_drafts <= num_kept <= r.num_new
        snapshots = tuple(
            self._prefix(seq, seq.num_computed + i + 1, r.state_after(i))
            for i in r.capture_at
            if i < num_kept
        )
        seq.slot, seq.num_pending = r.state_after(num_kept - 1)
        seq.num_computed += num_kept
        self._release_slots({r.load_slot, *r.store_slots} - {seq.slot})
        self._close(seq)
        return snapshots

    def abort(self, r: Reservation) -> None:
        """Return everything, so that pools are as they were if the last reservation ends first.
        After a pass has run, the own slot may have been overwritten."""
        assert r.seq.reserved
        self._release_slots([slot for slot in reversed(r.store_slots) if slot != r.load_slot])
        self._close(r.seq)

    def fold(self, seq: Sequence) -> tuple[Fold, ...]:
        """After a commit: what is to be made before the next pass, for a state that is not to wait
        for it. A state that others share waits all the same."""
        if self.rollback is not Rollback.REPLAY or not seq.num_pending:
            return ()
        if not self.slots.exclusive(seq.slot):
            return ()
        num_pending, seq.num_pending = seq.num_pending, 0
        return (Fold(seq.slot, num_pending),)

    def snapshot(self, seq: Sequence) -> Snapshot:
        """Keep a sequence's history, which ends on a block boundary, beyond its own life."""
        assert not seq.reserved and seq.num_computed % self.block_size == 0
        return self._prefix(seq, seq.num_computed, (seq.slot, seq.num_pending))

    def resume(self, snapshot: Snapshot, written: Iterable[int] = ()) -> Sequence:
        """A new sequence that continues a snapshot, which stays.

        `written` are further full blocks whose KV rows are known though the state after them is
        not: their tokens are computed again, and their rows are read but never written.
        """
        blocks = [self.blocks.share(b) for b in (*snapshot.blocks, *written)]
        return Sequence(
            snapshot.num_computed,
            len(blocks) * self.block_size,
            blocks,
            self.slots.share(snapshot.slot),
            snapshot.num_pending,
        )

    def drop(self, snapshot: Snapshot) -> None:
        """Give up a snapshot."""
        for block in snapshot.blocks:
            self.blocks.release(block)
        self.slots.release(snapshot.slot)

    def fork(self, seq: Sequence) -> tuple[Sequence, tuple[BlockCopy, ...]]:
        """A second sequence with the same history; only a part-filled last block needs a copy.

        `OutOfCache` changes nothing. The copies must be made before the next pass.
        """
        assert not seq.reserved
        full, part = divmod(max(seq.num_computed, seq.num_written), self.block_size)
        if part and not self.blocks.num_free:
            raise OutOfCache(1, 0)
        blocks = [self.blocks.share(b) for b in seq.blocks[:full]]
        copies: tuple[BlockCopy, ...] = ()
        if part:
            blocks.append(self.blocks.acquire())
            copies = (BlockCopy(seq.blocks[full], blocks[-1], part),)
        slot = self.slots.share(seq.slot)
        twin = Sequence(seq.num_computed, seq.num_written, blocks, slot, seq.num_pending)
        return twin, copies

    def receive(
        self, shared: Iterable[int], num_new: int, *, has_state: bool, num_computed: int
    ) -> Sequence:
        """A sequence with a history whose rows and state are about to be copied into its new
        blocks, after those shared, and its new slot. The caller has checked that there are so many
        free."""
        blocks = [self.blocks.share(b) for b in shared]
        blocks += [self.blocks.acquire() for _ in range(num_new)]
        return Sequence(
            num_computed, blocks=blocks, slot=self.slots.acquire() if has_state else NULL
        )

    def free(self, seq: Sequence) -> None:
        """End a sequence; it is empty afterwards and may start again."""
        assert not seq.reserved
        for block in seq.blocks:
            self.blocks.release(block)
        self.slots.release(seq.slot)
        seq.num_computed = seq.num_written = seq.num_pending = 0
        seq.blocks, seq.slot = [], NULL

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _prefix(self, seq: Sequence, num_computed: int, state: tuple[int, int]) -> Snapshot:
        blocks = tuple(map(self.blocks.share, seq.blocks[: num_computed // self.block_size]))
        slot, num_pending = state
        return Snapshot(num_computed, blocks, self.slots.share(slot), num_pending)

    def _release_slots(self, slots: Iterable[int]) -> None:
        for slot in slots:
            if slot != SKIP:
                self.slots.release(slot)

    def _close(self, seq: Sequence) -> None:
        """End a reservation: give back the blocks past what is history."""
        used = self._blocks_for(max(seq.num_computed, seq.num_written))
        while len(seq.blocks) > used:
            self.blocks.release(seq.blocks.pop())
        seq.reserved = False
