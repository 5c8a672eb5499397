"""What a sample takes from the prefix cache, and what it leaves there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.memory.prefix import PrefixCache, Worth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from thalweg.errors import OutOfCache
    from thalweg.memory.manager import CacheManager, Snapshot
    from thalweg.memory.prefix import Match
    from thalweg.scheduler.request import Sample


@dataclass(frozen=True, slots=True)
class ReusePolicy:
    enabled: bool = True
    snapshot_interval: int = 64
    """Tokens between snapshots in a long prompt; rounded up to whole blocks."""


class PrefixReuse:
    """Starts samples where the cache lets them, and publishes what they compute.

    Snapshots are few and placed by use: before a prompt's last token, where later prompts are said
    to branch off (`Request.snapshot_hints`), where this prompt left a known path, at intervals,
    and one that moves along with the answer.
    """

    def __init__(self, caches: CacheManager, policy: ReusePolicy) -> None:
        self._caches = caches
        self._prefix = PrefixCache(caches)
        self._enabled = policy.enabled
        self._interval = -(-policy.snapshot_interval // caches.block_size) * caches.block_size

    @property
    def cache(self) -> PrefixCache:
        return self._prefix

    def start(self, sample: Sample) -> None:
        """Give a sample that has no memory a sequence that begins with what is known of it."""
        size = self._caches.block_size
        last = (len(sample.tokens) - 1) // size  # one token at least is computed
        keys = sample.keys.extend(sample.tokens, size)[:last] if self._enabled else []
        match = self._prefix.match(() if sample.scores_prompt else keys)
        sample.seq = self._prefix.resume(match)
        sample.num_cached = sample.seq.num_computed
        sample.cache_miss = self._why_not_more(sample, match, last)
        placed = {
            last * size,
            len(match.nodes) * size,
            *(hint // size * size for hint in sample.request.snapshot_hints),
        }
        spare = range(self._interval, last * size, self._interval)
        wanted = dict.fromkeys(spare, Worth.SPARE) | dict.fromkeys(placed, Worth.PLACED)
        sample.snapshot_at = wanted if self._enabled else {}
        sample.rolls_from = len(sample.tokens)

    def known_blocks(self, sample: Sample, num_computed: int) -> tuple[int, ...]:
        """The blocks in the cache that hold the first of so many computed tokens."""
        if not self._enabled:
            return ()
        size = self._caches.block_size
        keys = sample.keys.extend(sample.tokens, size)[: num_computed // size]
        return tuple(node.block for node in self._prefix.match(keys).nodes)

    def capture_at(self, sample: Sample, num_new: int, worth: Worth) -> list[int]:
        """Which of a row's tokens are followed by a snapshot that is worth at least so much."""
        start, size = sample.seq.num_computed, self._caches.block_size
        if not self._enabled:
            return []
        boundaries = range(start // size * size + size, start + num_new + 1, size)
        return [
            position - start - 1
            for position in boundaries
            if self._worth(sample, position) >= worth
        ]

    def publish(self, sample: Sample, snapshots: Iterable[Snapshot]) -> None:
        """After a commit: make the sample's full blocks known, and the captured snapshots."""
        if not self._enabled:
            return
        size = self._caches.block_size
        keys = sample.keys.extend(sample.tokens, size)
        self._prefix.publish(sample.seq, sample.keys)
        for snapshot in snapshots:
            worth = Worth(self._worth(sample, snapshot.num_computed))
            self._prefix.publish_snapshot(snapshot, keys, worth)
            if snapshot.num_computed >= sample.rolls_from:
                if sample.rolling:
                    self._prefix.withdraw_snapshot(keys[sample.rolling // size - 1])
                sample.rolling = snapshot.num_computed

    def evict(self, short: OutOfCache, worth: Worth | None = None) -> bool:
        """Give up what a reservation lacked, or part of it; False if there is nothing left that is
        worth no more than `worth`."""
        return self._prefix.evict(short.blocks, short.slots, worth)

    def _worth(self, sample: Sample, position: int) -> int:
        """Of a snapshot there; below `SPARE` where none is wanted."""
        if position >= sample.rolls_from:
            return Worth.PLACED
        return sample.snapshot_at.get(position, -1)

    def _why_not_more(self, sample: Sample, match: Match, last: int) -> str | None:
        """Why less than all but the last block came from the cache; None if nothing more could."""
        size = self._caches.block_size
        if match.num_resumable == last and last:
            return None
        if not self._enabled:
            return "the prefix cache is off"
        if sample.scores_prompt:
            return "prompt_logprobs computes the whole prompt"
        if not last:
            return f"too short: less than a block of {size} tokens and one more"
        known = len(match.nodes)
        start = known * size
        if match.num_resumable < known:
            lost = any(node.has_lost_snapshot for node in match.nodes[match.num_resumable :])
            return (
                f"{'evicted' if lost else 'no snapshot'}: KV is known up to token {start}, "
                f"the state up to token {match.num_resumable * size}"
            )
        if num_lost := self._prefix.num_lost(sample.keys.keys[known:last]):
            return f"evicted: tokens {start} to {start + num_lost * size - 1} were known"
        block = sample.tokens[start : start + size]
        num_shared = self._prefix.num_shared(sample.keys.before(known), block)
        if known and num_shared is None:
            return f"new: nothing known goes on after token {start}"
        if not known and not num_shared:
            return "new: nothing known begins like this prompt"
        return f"prompt diverges at token {start + (num_shared or 0)}: known ones go on differently"
