"""What is known already: full blocks by content, with state snapshots at the end of some of them.

A hybrid model resumes only where both memories are there: at the deepest snapshot at or below the
last known block. KV rows above it are shared all the same, and not written again.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING

from thalweg.ids import NULL
from thalweg.memory.block_keys import block_content
from thalweg.memory.manager import Snapshot
from thalweg.memory.siblings import Siblings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from thalweg.memory import manager
    from thalweg.memory.block_keys import BlockKeys


class Worth(IntEnum):
    """How long a snapshot is kept beside others: a unit is the time in which all of them are
    replaced once (the ageing of GreedyDual: P. Cao and S. Irani, USITS 1997)."""

    SPARE = 0
    """Somebody might branch off there."""
    PLACED = 1
    """A next prompt is expected to go on from there."""
    PROVEN = 4
    """One did."""


@dataclass(slots=True, eq=False)
class Node:
    """A known block. Holds one reference to its KV block, and one to the snapshot's slot."""

    key: bytes
    parent_key: bytes
    """Of the block before it, known or not: the first block's is the salt's."""
    parent: Node | None
    block: int
    slot: int = NULL
    """The state after the block; NULL: no snapshot here."""
    num_pending: int = 0
    """Logged tokens that the state is behind."""
    num_children: int = 0
    last_used: int = 0
    num_resumed: int = 0
    """How often a sequence started from this snapshot."""
    worth: Worth = Worth.SPARE
    has_lost_snapshot: bool = False
    """It had one that was given up for memory."""


@dataclass(frozen=True, slots=True)
class Match:
    """How much of a prompt is known, in order from its first block."""

    nodes: tuple[Node, ...]
    num_resumable: int
    """Blocks up to the deepest snapshot; computing starts after them."""


class PrefixCache:
    """Shares the blocks and slots of a `CacheManager` among sequences that begin alike.

    All that only the cache holds is evictable: blocks by last use; snapshots by what they are
    worth, which fades, and then by last use.
    """

    def __init__(self, caches: manager.CacheManager) -> None:
        self._caches = caches
        self._nodes: dict[bytes, Node] = {}
        self._clock = count(1)
        self._leaves = _Ranked()
        self._snapshots = _Ranked()
        self._siblings = Siblings()
        self._ghosts: OrderedDict[bytes, None] = OrderedDict()
        """Keys of blocks that were given up lately."""
        self._age = 0
        """The rank of the last snapshot that was given up."""
        self.num_snapshots = 0

    @property
    def num_blocks(self) -> int:
        return len(self._nodes)

    def match(self, keys: Sequence[bytes]) -> Match:
        """The longest known prefix of these blocks."""
        nodes: list[Node] = []
        resumable = 0
        for key in keys:
            if (node := self._nodes.get(key)) is None:
                break
            nodes.append(node)
            if node.slot != NULL:
                resumable = len(nodes)
        return Match(tuple(nodes), resumable)

    def num_lost(self, keys: Sequence[bytes]) -> int:
        """How many of these blocks, from the first one on, were given up for memory lately."""
        return next((i for i, key in enumerate(keys) if key not in self._ghosts), len(keys))

    def num_shared(self, parent_key: bytes, token_ids: Sequence[int]) -> int | None:
        """How many of these tokens the nearest known successor of a block begins with; None: it
        has no successors."""
        return self._siblings.num_shared(parent_key, block_content(token_ids))

    def resume(self, match: Match) -> manager.Sequence:
        """A sequence that continues a match, which was made since the last eviction."""
        known = match.num_resumable
        blocks = [node.block for node in match.nodes]
        slot, num_pending = NULL, 0
        if known:
            slot, num_pending = match.nodes[known - 1].slot, match.nodes[known - 1].num_pending
        num_computed = known * self._caches.block_size
        snapshot = Snapshot(num_computed, tuple(blocks[:known]), slot, num_pending)
        seq = self._caches.resume(snapshot, blocks[known:])
        now = next(self._clock)
        for node in match.nodes:
            node.last_used = now
        if known:
            node = match.nodes[known - 1]
            node.num_resumed += 1
            self._value(node, Worth.PROVEN)
        if match.nodes:
            self._leaves.push(match.nodes[-1], now)
        return seq

    def publish(self, seq: manager.Sequence, names: BlockKeys) -> None:
        """Make a sequence's computed full blocks known. Blocks that are known already stay as they
        are; the sequence goes on with its own."""
        keys = names.keys
        stop = min(len(keys), seq.num_computed // self._caches.block_size)
        start = stop
        while start and keys[start - 1] not in self._nodes:
            start -= 1
        parent = self._nodes[keys[start - 1]] if start else None
        now = next(self._clock)
        for i in range(start, stop):
            block = self._caches.blocks.share(seq.blocks[i])
            node = Node(keys[i], names.before(i), parent, block, last_used=now)
            self._siblings.add(node.parent_key, node.key, names.contents[i])
            self._ghosts.pop(node.key, None)
            if parent is not None:
                parent.num_children += 1
            self._nodes[keys[i]] = parent = node
        if start < stop and parent is not None:
            self._leaves.push(parent, now)

    def publish_snapshot(
        self, snapshot: Snapshot, keys: Sequence[bytes], worth: Worth = Worth.PLACED
    ) -> None:
        """Take over a snapshot whose blocks were published; drop it if there is one already."""
        node = self._nodes[keys[snapshot.num_computed // self._caches.block_size - 1]]
        if node.slot == NULL and snapshot.slot != NULL:
            node.slot = self._caches.slots.share(snapshot.slot)
            node.num_pending = snapshot.num_pending
            node.has_lost_snapshot = False
            self.num_snapshots += 1
        self._value(node, worth)
        self._caches.drop(snapshot)

    def withdraw_snapshot(self, key: bytes) -> None:
        """Give up the snapshot at the end of a block, unless it served somebody."""
        node = self._nodes.get(key)
        if node is not None and not node.num_resumed:
            self._drop_snapshot(node)

    def evict(self, num_blocks: int, num_slots: int, worth: Worth | None = None) -> bool:
        """Give up enough to free so many ids, or all there is; False if there was nothing.

        Snapshots go before blocks; a block takes its snapshot along. `worth`: what the slots are
        for is worth no more, so no snapshot that is goes for it. Where no slot can be freed, a
        snapshot that a sequence shares is given up, so that the sequence may write in place.
        """
        blocks, slots = self._caches.blocks, self._caches.slots
        want_blocks, want_slots = blocks.num_free + num_blocks, slots.num_free + num_slots
        before = self.num_blocks + self.num_snapshots
        limit = None if worth is None else self._age + worth
        self._snapshots.drain(
            until=lambda: slots.num_free >= want_slots,
            usable=lambda node: node.slot != NULL,
            free=lambda node: slots.exclusive(node.slot),
            take=self._lose_snapshot,
            limit=limit,
        )
        num_shared = self.num_snapshots
        self._snapshots.drain(
            until=lambda: slots.num_free >= want_slots or self.num_snapshots < num_shared,
            usable=lambda node: node.slot != NULL,
            free=lambda node: True,
            take=self._lose_snapshot,
            limit=limit,
        )
        self._leaves.drain(
            until=lambda: blocks.num_free >= want_blocks,
            usable=lambda node: self._nodes.get(node.key) is node and not node.num_children,
            free=lambda node: blocks.exclusive(node.block),
            take=lambda node, _: self._remove(node),
        )
        return self.num_blocks + self.num_snapshots < before

    def clear(self) -> None:
        """Give up everything, also what running sequences share."""
        for node in self._nodes.values():
            self._drop_snapshot(node)
            self._caches.blocks.release(node.block)
        self._nodes.clear()
        self._leaves, self._snapshots = _Ranked(), _Ranked()
        self._siblings = Siblings()

    def _value(self, node: Node, worth: Worth) -> None:
        """A snapshot is used, or new: from now on it is worth at least so much."""
        node.worth = max(node.worth, worth)
        self._snapshots.push(node, self._age + node.worth)

    def _lose_snapshot(self, node: Node, rank: int) -> None:
        self._age = max(self._age, rank)
        self._drop_snapshot(node)
        node.has_lost_snapshot = True

    def _drop_snapshot(self, node: Node) -> None:
        if node.slot != NULL:
            self._caches.slots.release(node.slot)
            node.slot, node.num_resumed, node.worth = NULL, 0, Worth.SPARE
            self.num_snapshots -= 1

    def _remove(self, node: Node) -> None:
        self._drop_snapshot(node)
        self._caches.blocks.release(node.block)
        del self._nodes[node.key]
        self._siblings.remove(node.parent_key, node.key)
        self._ghosts[node.key] = None
        if len(self._ghosts) > 2 * self._caches.blocks.size:
            self._ghosts.popitem(last=False)
        if (parent := node.parent) is not None:
            parent.num_children -= 1
            if not parent.num_children:
                self._leaves.push(parent, parent.last_used)


class _Ranked:
    """Nodes by rank, and of the same rank by when they got it: a heap in which only a node's
    latest entry counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._latest: dict[Node, tuple[int, int]] = {}
        self._ties = count()

    def push(self, node: Node, rank: int) -> None:
        self._push(node, rank, next(self._ties))

    def _push(self, node: Node, rank: int, tie: int) -> None:
        self._latest[node] = rank, tie
        heapq.heappush(self._heap, (rank, tie, node))
        if len(self._heap) > 64 + 2 * len(self._latest):  # mostly stale
            self._heap = [(rank, tie, node) for node, (rank, tie) in self._latest.items()]
            heapq.heapify(self._heap)

    def drain(
        self,
        *,
        until: Callable[[], bool],
        usable: Callable[[Node], bool],
        free: Callable[[Node], bool],
        take: Callable[[Node, int], None],
        limit: int | None = None,
    ) -> None:
        """Take the lowest nodes, up to rank `limit`, until it is enough. Those that are not
        `usable` are forgotten; those that others hold (not `free`) stay for another time."""
        held: list[tuple[int, int, Node]] = []
        while self._heap and not until() and (limit is None or self._heap[0][0] <= limit):
            rank, tie, node = heapq.heappop(self._heap)
            if self._latest.get(node) != (rank, tie):
                continue
            del self._latest[node]
            if not usable(node):
                continue
            if free(node):
                take(node, rank)
            else:
                held.append((rank, tie, node))
        for rank, tie, node in held:
            self._push(node, rank, tie)
