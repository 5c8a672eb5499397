"""Which sequences are parked in the host tier, and which copies bring them there and back.
Torch-free: `offload.storage` makes the copies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from thalweg.errors import OutOfCache
from thalweg.ids import NULL
from thalweg.memory.pool import Pool

if TYPE_CHECKING:
    from thalweg.memory.manager import CacheManager, Sequence


class Direction(Enum):
    OUT = "to the host tier"
    IN = "back into the pools"


@dataclass(frozen=True, slots=True)
class Pair:
    pool: int
    host: int


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Whole blocks and slots, to be copied before the next pass, in the order of the plan."""

    direction: Direction
    blocks: tuple[Pair, ...]
    slots: tuple[Pair, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Parked:
    """A sequence whose memory is in the host tier."""

    num_computed: int
    num_written: int
    blocks: tuple[int, ...]
    """Host ids, as `slot`."""
    slot: int
    num_pending: int
    out: Move
    """What brought it there. Until that was copied there is nothing."""


class HostTier:
    """Room for whole sequences beside the pools of a `CacheManager`; none by default."""

    def __init__(self, caches: CacheManager, num_blocks: int = 1, num_slots: int = 1) -> None:
        """Both count id 0, which is reserved."""
        self._caches = caches
        self.blocks, self.slots = Pool(num_blocks), Pool(num_slots)

    def park(self, seq: Sequence) -> Parked | None:
        """Take a sequence's history over; it is empty afterwards. None, and nothing has changed,
        if there is no room."""
        num_slots = int(seq.slot != NULL)
        if len(seq.blocks) > self.blocks.num_free or num_slots > self.slots.num_free:
            return None
        blocks = tuple(Pair(block, self.blocks.acquire()) for block in seq.blocks)
        slots = tuple(Pair(seq.slot, self.slots.acquire()) for _ in range(num_slots))
        parked = Parked(
            seq.num_computed,
            seq.num_written,
            tuple(pair.host for pair in blocks),
            slots[0].host if slots else NULL,
            seq.num_pending,
            Move(Direction.OUT, blocks, slots),
        )
        self._caches.free(seq)
        return parked

    def take_back(self, parked: Parked, known: tuple[int, ...] = ()) -> tuple[Sequence, Move]:
        """The sequence in the pools again. `known` are pool blocks that hold the same as its first
        ones: they are shared, not copied. `OutOfCache` changes nothing."""
        num_new = len(parked.blocks) - len(known)
        num_slots = int(parked.slot != NULL)
        short = OutOfCache(
            max(0, num_new - self._caches.blocks.num_free),
            max(0, num_slots - self._caches.slots.num_free),
        )
        if short.blocks or short.slots:
            raise short
        seq = self._caches.receive(
            known, num_new, has_state=bool(num_slots), num_computed=parked.num_computed
        )
        seq.num_written, seq.num_pending = parked.num_written, parked.num_pending
        new = zip(seq.blocks[len(known) :], parked.blocks[len(known) :], strict=True)
        slots = (Pair(seq.slot, parked.slot),) if num_slots else ()
        move = Move(Direction.IN, tuple(Pair(pool, host) for pool, host in new), slots)
        self.drop(parked)
        return seq, move

    def drop(self, parked: Parked) -> None:
        """Forget it."""
        for block in parked.blocks:
            self.blocks.release(block)
        self.slots.release(parked.slot)
