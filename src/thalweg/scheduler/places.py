"""Who runs and who waits, in order of rank, and what becomes of their memory when they change
places."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

from thalweg.errors import OutOfCache

if TYPE_CHECKING:
    from thalweg.memory.manager import CacheManager
    from thalweg.memory.offload.host_tier import HostTier, Move
    from thalweg.scheduler.request import Sample
    from thalweg.scheduler.reuse import PrefixReuse

RANK = attrgetter("rank")


class Places:
    def __init__(
        self, caches: CacheManager, reuse: PrefixReuse, tier: HostTier, *, max_num_seqs: int
    ) -> None:
        self._caches, self._reuse, self._tier = caches, reuse, tier
        self._max_num_seqs = max_num_seqs
        self.waiting: list[Sample] = []
        self.running: list[Sample] = []
        self.moves: list[Move] = []
        """To be made before the next pass."""
        self.num_preemptions = self.num_parkings = 0
        self._alone: str | None = None
        self._stuck: Sample | None = None
        """The first one waiting, if it did not fit and nothing was freed since."""

    @property
    def is_full(self) -> bool:
        return len(self.running) >= self._max_num_seqs

    @property
    def num_coming(self) -> int:
        """How many of those that wait there is a place for."""
        return min(len(self.waiting), self._max_num_seqs - len(self.running))

    def wait(self, sample: Sample) -> None:
        insort(self.waiting, sample, key=RANK)

    def run(self, sample: Sample) -> None:
        insort(self.running, sample, key=RANK)

    def start_next(self) -> Sample | None:
        """Let the first one that waits run, if all it has so far fits beside the others. None, and
        nothing has changed, if not; so nobody is pushed out, nor is anyone let past it."""
        if self.is_full:
            return None
        eligible = (s for s in self.waiting if self._alone in (None, s.request.id))
        sample = next(eligible, None)
        if sample is None or sample is self._stuck:
            return None
        if not self._start(sample):
            self._stuck = sample if self.running else None
            return None
        self.waiting.remove(sample)
        self.run(sample)
        return sample

    def make_way(self) -> None:
        """Samples that wait take the places of less urgent running ones, the last of them first."""
        while self.waiting and self.running and self._alone is None:
            last, first = self.running[-1].request.options, self.waiting[0].request.options
            if first.priority >= last.priority:
                break
            if self.start_next() is None:
                self.give_way(self.running[-1])

    def give_way(self, sample: Sample) -> None:
        """A running sample waits again. What it has goes to the host tier if there is room."""
        self.running.remove(sample)
        if sample.seq.num_computed:
            sample.parked = self._tier.park(sample.seq)
        if sample.parked is not None:
            self.moves.append(sample.parked.out)
            self.num_parkings += 1
        self.free(sample)
        sample.num_preemptions += 1
        self.num_preemptions += 1
        self.wait(sample)

    def isolate(self, request_id: str | None) -> None:
        """Until called again only this request starts, and the others give way; None: all do."""
        self._alone, self._stuck = request_id, None
        for sample in reversed(self.running.copy()):
            if request_id not in (None, sample.request.id):
                self.give_way(sample)

    def forget(self, moves: tuple[Move, ...]) -> None:
        """What these would have brought to the host tier is not there."""
        for sample in self.waiting:
            if sample.parked is not None and sample.parked.out in moves:
                self._drop_parked(sample)

    def end(self, sample: Sample) -> None:
        """Its memory is free at once, or after the step that it is in."""
        sample.has_ended = True
        if sample in self.running:
            self.running.remove(sample)
        elif sample in self.waiting:
            self.waiting.remove(sample)
        self._drop_parked(sample)
        if not sample.seq.reserved:
            self.free(sample)

    def free(self, sample: Sample) -> None:
        self._caches.free(sample.seq)
        sample.drafts = ()
        self._stuck = None

    def _drop_parked(self, sample: Sample) -> None:
        if sample.parked is not None:
            self._tier.drop(sample.parked)
            sample.parked = None

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
            held = set(sample.seq.blocks).union(*(each.seq.blocks for each in self.running))
            could = self._caches.blocks.size - 1 - len(held) >= blocks  # else evict nothing in vain
            if not could or not self._reuse.evict(short):
                self.free(sample)
                return False
        if (parked := sample.parked) is not None:
            known = self._reuse.known_blocks(sample, parked.num_computed)
            sample.seq, move = self._tier.take_back(parked, known)
            self.moves.append(move)
            sample.parked = None
        return True
