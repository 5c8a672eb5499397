"""The prefix cache against a model that remembers everything and searches it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.errors import OutOfCache
from thalweg.ids import NULL
from thalweg.memory.block_keys import BlockKeys
from thalweg.memory.manager import CacheManager, Sequence
from thalweg.memory.prefix import PrefixCache

SIZE = 2


@dataclass
class Run:
    """A sequence that computes tokens, publishes what it has, and takes snapshots."""

    tokens: list[int]
    keys: BlockKeys = field(default_factory=BlockKeys)
    seq: Sequence = field(default_factory=Sequence)


class World:
    """A manager with a prefix cache, and the obvious model of what that may hold."""

    def __init__(self, num_blocks: int = 64, num_slots: int = 64) -> None:
        self.caches = CacheManager(num_blocks, SIZE, num_slots)
        self.prefix = PrefixCache(self.caches)
        self.runs: list[Run] = []
        self.content: dict[int, tuple[int, ...]] = {}  # block -> the tokens up to its end
        self.state: dict[int, tuple[int, ...]] = {}  # slot -> the tokens it has seen

    def start(self, tokens: list[int]) -> Run:
        run = Run(list(tokens))
        keys = run.keys.extend(tokens, SIZE)[: (len(tokens) - 1) // SIZE]
        match = self.prefix.match(keys)
        run.seq = self.prefix.resume(match)
        assert run.seq.num_computed == match.num_resumable * SIZE < len(tokens)
        for i, block in enumerate(run.seq.blocks):
            assert self.content[block] == tuple(tokens[: (i + 1) * SIZE]), "another's KV"
        if run.seq.slot != NULL:
            assert self.state[run.seq.slot] == tuple(tokens[: run.seq.num_computed])
        else:
            assert run.seq.num_computed == 0
        self.runs.append(run)
        return run

    def compute(self, run: Run, num_new: int, capture: bool) -> None:
        """Compute the next tokens, with a snapshot at the last boundary if `capture`."""
        start = run.seq.num_computed
        num_new = min(num_new, len(run.tokens) - start)
        boundary = (start + num_new) // SIZE * SIZE
        capture_at = [boundary - start - 1] if capture and boundary > start else []
        if not num_new:
            return
        try:
            r = self.caches.reserve(run.seq, num_new, capture_at=capture_at)
        except OutOfCache as short:
            self.prefix.evict(short.blocks, short.slots)
            try:
                r = self.caches.reserve(run.seq, num_new, capture_at=capture_at)
            except OutOfCache:
                return
        for i, slot in enumerate(r.store_slots):
            if slot >= 0:
                self.state[slot] = tuple(run.tokens[: start + i + 1])
        for position in range(max(start, run.seq.num_written), start + num_new):
            block = run.seq.blocks[position // SIZE]
            assert self.caches.blocks.exclusive(block), "a shared block would be written"
            self.content[block] = tuple(run.tokens[: position + 1])
        snapshots = self.caches.commit(r, num_new)
        keys = run.keys.extend(run.tokens, SIZE)
        self.prefix.publish(run.seq, run.keys)
        for snapshot in snapshots:
            self.prefix.publish_snapshot(snapshot, keys)

    def finish(self, run: Run) -> None:
        self.runs.remove(run)
        self.caches.free(run.seq)

    def close(self) -> None:
        for run in list(self.runs):
            self.finish(run)
        assert self.caches.blocks.num_used == self.prefix.num_blocks
        self.prefix.evict(self.caches.blocks.size, self.caches.slots.size)
        assert self.caches.blocks.num_used == self.caches.slots.num_used == 0, "something leaked"
        assert self.prefix.num_blocks == self.prefix.num_snapshots == 0


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14)
ops = st.one_of(
    st.tuples(st.just("start"), prompts),
    st.tuples(st.just("compute"), st.integers(0, 5), st.integers(1, 9), st.booleans()),
    st.tuples(st.just("finish"), st.integers(0, 5)),
    st.tuples(st.just("evict"), st.integers(0, 4), st.integers(0, 4)),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(ops, max_size=40), st.sampled_from([(64, 64), (10, 6), (64, 5), (9, 64)]))
def test_any_program_finds_only_what_is_equal_and_leaks_nothing(
    program: list[tuple[Any, ...]], pools: tuple[int, int]
) -> None:
    world = World(*pools)
    for op in program:
        match op:
            case ("start", tokens) if len(world.runs) < 6:
                world.start(tokens)
            case ("compute", i, num_new, capture) if world.runs:
                world.compute(world.runs[i % len(world.runs)], num_new, capture)
            case ("finish", i) if world.runs:
                world.finish(world.runs[i % len(world.runs)])
            case ("evict", num_blocks, num_slots):
                world.prefix.evict(num_blocks, num_slots)
    world.close()


def known(world: World, tokens: list[int]) -> tuple[int, int]:
    """Blocks known and blocks resumable, without touching anything."""
    match = world.prefix.match(BlockKeys().extend(tokens, SIZE))
    return len(match.nodes), match.num_resumable


def test_a_hit_is_the_deepest_snapshot_below_the_kv_match() -> None:
    world = World()
    run = world.start([1, 2, 3, 4, 5, 6, 7, 8])
    world.compute(run, 4, capture=True)
    world.compute(run, 4, capture=False)
    assert known(world, [1, 2, 3, 4, 5, 6, 7, 8]) == (4, 2)
    assert known(world, [1, 2, 3, 4, 5, 6, 9, 9]) == (3, 2)
    assert known(world, [1, 2, 9, 9]) == (1, 0)
    again = world.start([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert again.seq.num_computed == 4 and again.seq.num_written == 8
    world.close()


def test_without_states_a_match_falls_back_to_the_last_one_left() -> None:
    """S15: KV without a companion state is no reason to start from nothing."""
    world = World()
    run = world.start([1, 2, 3, 4, 5, 6])
    for _ in range(3):
        world.compute(run, 2, capture=True)
    world.finish(run)
    world.start([1, 2, 9])  # uses the first snapshot: now the latest used
    world.prefix.evict(0, 1)
    assert known(world, [1, 2, 3, 4, 5, 6]) == (3, 3), "the oldest of those not in use goes first"
    world.prefix.evict(0, 1)
    assert known(world, [1, 2, 3, 4, 5, 6]) == (3, 1), "the one in use stays as long as it can"
    world.close()


def test_snapshots_go_before_blocks_and_leaves_before_stems() -> None:
    world = World(num_blocks=7)
    run = world.start([1, 2, 3, 4, 5, 6])
    for _ in range(3):
        world.compute(run, 2, capture=True)
    world.finish(run)
    world.prefix.evict(0, 64)
    assert known(world, [1, 2, 3, 4, 5, 6]) == (3, 0)
    world.prefix.evict(2, 0)
    assert known(world, [1, 2, 3, 4, 5, 6]) == (1, 0)
    world.close()


def test_the_least_recently_used_goes_first() -> None:
    world = World()
    for tokens in ([1, 2], [3, 4], [5, 6]):
        run = world.start([*tokens, 9])
        world.compute(run, 2, capture=True)
        world.finish(run)
    world.finish(world.start([1, 2, 7]))
    world.prefix.evict(1, 0)
    assert [known(world, t)[0] for t in ([1, 2], [3, 4], [5, 6])] == [1, 0, 1]
    world.close()


def test_the_same_content_computed_twice_is_known_once() -> None:
    world = World()
    first, second = world.start([1, 2, 3, 4]), world.start([1, 2, 3, 4])
    for run in (first, second):
        world.compute(run, 4, capture=True)
    assert world.prefix.num_blocks == 2 and world.prefix.num_snapshots == 1
    world.finish(first)
    world.prefix.evict(64, 64)  # the second still has its own blocks, which nobody knows
    world.compute(second, 4, capture=False)
    world.close()


def test_a_rolling_snapshot_is_withdrawn_unless_it_served_somebody() -> None:
    world = World()
    run = world.start([1, 2, 3, 4, 5])
    world.compute(run, 2, capture=True)
    world.compute(run, 2, capture=True)
    keys = run.keys.keys
    world.prefix.withdraw_snapshot(keys[0])
    assert world.prefix.num_snapshots == 1
    world.start([1, 2, 3, 4, 7])
    world.prefix.withdraw_snapshot(keys[1])
    assert world.prefix.num_snapshots == 1, "it served somebody"
    world.close()


def test_salts_keep_equal_tokens_apart() -> None:
    """S18: what is no token (adapter, tenant, image) is part of the name."""
    one, other = BlockKeys(b"one"), BlockKeys(b"other")
    assert not set(one.extend([1, 2, 3, 4], SIZE)) & set(other.extend([1, 2, 3, 4], SIZE))


def test_keys_grow_with_the_tokens_and_name_all_before() -> None:
    keys = BlockKeys()
    early = list(keys.extend([1, 2, 3], SIZE))
    assert len(early) == 1 and keys.extend([1, 2, 3, 4], SIZE)[:1] == early
    assert BlockKeys().extend([9, 2, 3, 4], SIZE)[1] != keys.keys[1]


def test_stale_entries_do_not_pile_up() -> None:
    world = World()
    run = world.start([1, 2, 3])
    world.compute(run, 2, capture=True)
    for _ in range(2000):
        world.finish(world.start([1, 2, 3]))
    assert len(world.prefix._leaves._heap) < 100 and len(world.prefix._snapshots._heap) < 100
    world.close()
