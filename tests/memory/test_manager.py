"""Bookkeeping alone: what may be called when, and interleavings of open reservations."""

from __future__ import annotations

import pytest

from thalweg.errors import OutOfCache
from thalweg.ids import NULL, SKIP
from thalweg.memory.manager import CacheManager, Reservation, Sequence, Snapshot


@pytest.fixture
def manager() -> CacheManager:
    return CacheManager(16, 4, 16)


def grown(manager: CacheManager, num_tokens: int) -> Sequence:
    seq = Sequence()
    manager.commit(manager.reserve(seq, num_tokens), num_tokens)
    return seq


def assert_empty(manager: CacheManager) -> None:
    assert manager.blocks.num_used == manager.slots.num_used == 0


def test_first_step_loads_the_zero_state_and_stores_elsewhere(manager: CacheManager) -> None:
    r = manager.reserve(Sequence(), 5)
    assert r.load_slot == NULL and r.store_slots[:-1] == (SKIP,) * 4 and r.store_slots[-1] != NULL
    assert r.num_new == 5 and len(r.seq.blocks) == 2


def test_later_steps_are_in_place(manager: CacheManager) -> None:
    seq = grown(manager, 3)
    r = manager.reserve(seq, 1)
    assert r.store_slots == (r.load_slot,) and len(seq.blocks) == 1
    manager.commit(r, 1)
    assert seq.num_computed == 4 and manager.slots.num_used == 1


def test_only_one_reservation_at_a_time(manager: CacheManager) -> None:
    seq = grown(manager, 4)
    r = manager.reserve(seq, 1)
    calls = (
        lambda: manager.reserve(seq, 1),
        lambda: manager.fork(seq),
        lambda: manager.snapshot(seq),
        lambda: manager.free(seq),
    )
    for call in calls:
        with pytest.raises(AssertionError):
            call()
    manager.abort(r)
    for end in (lambda: manager.abort(r), lambda: manager.commit(r, 1)):
        with pytest.raises(AssertionError):
            end()
    manager.free(seq)
    assert_empty(manager)


@pytest.mark.parametrize(("num_new", "num_drafts"), [(0, 0), (1, 1), (3, 3), (3, -1)])
def test_a_step_has_a_token_that_is_no_draft(
    manager: CacheManager, num_new: int, num_drafts: int
) -> None:
    with pytest.raises(AssertionError):
        manager.reserve(Sequence(), num_new, num_drafts=num_drafts)
    assert_empty(manager)


@pytest.mark.parametrize("num_kept", [0, 1, 2, 6])
def test_certain_tokens_are_kept_and_no_more_than_there_are(
    manager: CacheManager, num_kept: int
) -> None:
    r = manager.reserve(Sequence(), 5, num_drafts=2)
    with pytest.raises(AssertionError):
        manager.commit(r, num_kept)


def test_captures_and_snapshots_end_on_block_boundaries(manager: CacheManager) -> None:
    with pytest.raises(AssertionError):
        manager.reserve(Sequence(), 5, capture_at=[4])
    with pytest.raises(AssertionError):
        manager.snapshot(grown(manager, 5))


def test_captures_are_a_set_in_order(manager: CacheManager) -> None:
    seq = Sequence()
    r = manager.reserve(seq, 9, capture_at=[7, 3, 7])
    assert r.capture_at == (3, 7)
    snaps = manager.commit(r, 9)
    assert [s.num_computed for s in snaps] == [4, 8]
    assert [len(s.blocks) for s in snaps] == [1, 2]


def test_a_snapshot_dropped_while_its_heir_has_a_reservation(manager: CacheManager) -> None:
    seq = grown(manager, 4)
    snap = manager.snapshot(seq)
    manager.free(seq)
    heir = manager.resume(snap)
    r = manager.reserve(heir, 2)
    manager.drop(snap)
    assert r.load_slot == snap.slot != r.store_slots[-1], "decided when it was still shared"
    manager.commit(r, 2)
    manager.free(heir)
    assert_empty(manager)


@pytest.mark.parametrize("ends", [CacheManager.free, None])
def test_a_twin_freed_while_the_other_has_a_reservation(
    manager: CacheManager, ends: object
) -> None:
    seq = grown(manager, 6)
    twin, _ = manager.fork(seq)
    r = manager.reserve(seq, 3, num_drafts=2)
    manager.free(twin)
    if ends is None:
        manager.abort(r)
    else:
        manager.commit(r, 1)
    manager.free(seq)
    assert_empty(manager)


def test_reservations_end_in_any_order(manager: CacheManager) -> None:
    seq = grown(manager, 4)
    twin, _ = manager.fork(seq)
    a: Reservation = manager.reserve(seq, 3, num_drafts=1)
    b: Reservation = manager.reserve(twin, 3, num_drafts=2)
    assert a.load_slot == b.load_slot and not {*a.store_slots} & {*b.store_slots} - {SKIP}
    assert a.load_slot not in (*a.store_slots, *b.store_slots)
    manager.commit(b, 2)
    manager.abort(a)
    assert seq.num_computed == 4 and twin.num_computed == 6
    manager.free(seq)
    manager.free(twin)
    assert_empty(manager)


def test_aborting_returns_blocks_and_slots_at_once(manager: CacheManager) -> None:
    seq = grown(manager, 4)
    before = (manager.blocks.num_free, manager.slots.num_free, list(seq.blocks), seq.slot)
    manager.abort(manager.reserve(seq, 9, num_drafts=3, capture_at=[3]))
    assert (manager.blocks.num_free, manager.slots.num_free, list(seq.blocks), seq.slot) == before


def test_a_freed_sequence_starts_again_from_nothing(manager: CacheManager) -> None:
    seq = grown(manager, 7)
    manager.free(seq)
    assert seq.num_computed == 0
    assert manager.reserve(seq, 2).load_slot == NULL


def test_all_of_a_pool_can_be_used() -> None:
    manager = CacheManager(4, 4, 4)
    seq = Sequence()
    manager.commit(manager.reserve(seq, 12, num_drafts=2), 12)
    assert manager.blocks.num_free == 0
    with pytest.raises(OutOfCache) as refused:
        manager.reserve(seq, 1)
    assert (refused.value.blocks, refused.value.slots) == (1, 0)


def test_a_prompt_shorter_than_a_block_then_exactly_one_then_more(manager: CacheManager) -> None:
    """cases.md S5: no block is needed before its first token, none is missing at a boundary."""
    for length, num_blocks in ((1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        seq = grown(manager, length)
        assert len(seq.blocks) == num_blocks
        manager.free(seq)


def test_resumed_rows_are_known_up_to_the_last_shared_block(manager: CacheManager) -> None:
    donor = Sequence()
    (snap,) = manager.commit(manager.reserve(donor, 13, capture_at=[3]), 13)
    heir = manager.resume(snap, donor.blocks[1:3])
    assert (heir.num_computed, heir.num_written) == (4, 12)
    assert heir.blocks == donor.blocks[:3] and not any(map(manager.blocks.exclusive, heir.blocks))
    deep = manager.commit(manager.reserve(heir, 6, capture_at=[3]), 6)
    assert deep == (Snapshot(8, tuple(donor.blocks[:2]), deep[0].slot),)
    for seq in (donor, heir):
        manager.free(seq)
    for s in (snap, *deep):
        manager.drop(s)
    assert_empty(manager)
