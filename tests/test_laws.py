"""Laws 1 (commit), 2 (exclusive write) and 4 (nothing leaks) of the design, on the real package.

`world.World` checks them at every step; here are the programs. Each example runs on a model whose
rows name everything they read (cheap: many examples) and on a tiny hybrid, with the reference ops
and with the compiled kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness import SMALL, bits, exact_kernels, hash_model, same_bits, tiny
from programs import EXAMPLES, Drop, Fork, Free, Program, Resume, Snap, Step, run_program
from thalweg.config import Rollback
from thalweg.errors import OutOfCache
from thalweg.ids import NULL, SKIP
from world import Outcome, Part, World, bits_of, hash_world, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from thalweg.memory.storage import LayerCache

    Worlds = Callable[..., World]

index = st.integers(0, 5)
tokens = st.lists(st.integers(0, 3), min_size=1, max_size=10).map(tuple)
parts = st.builds(
    Part,
    index,
    tokens,
    num_drafts=st.integers(0, 4),
    num_kept_drafts=st.integers(0, 4),
    capture=st.booleans(),
    outcome=st.sampled_from([Outcome.COMMIT] * 6 + list(Outcome)),
)
steps = st.builds(
    Step,
    st.lists(parts, min_size=1, max_size=4).map(tuple),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
)
ops = st.one_of(
    steps,
    steps,
    st.builds(Fork, index),
    st.builds(Snap, index),
    st.builds(Resume, index, st.integers(0, 3)),
    st.builds(Drop, index),
    st.builds(Free, index),
)
programs = st.lists(ops, max_size=12).map(tuple)
rollbacks = st.sampled_from(Rollback)
pools = st.sampled_from([(64, 64), (64, 64), (8, 6), (14, 8), (5, 64), (64, 4)])


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs, pools, rollbacks)
@example(EXAMPLES[0], (64, 64), Rollback.CHECKPOINT)
@example(EXAMPLES[1], (64, 64), Rollback.CHECKPOINT)
@example(EXAMPLES[2], (64, 64), Rollback.CHECKPOINT)
@example(EXAMPLES[2], (8, 6), Rollback.CHECKPOINT)
@example(EXAMPLES[3], (64, 64), Rollback.REPLAY)
@example(EXAMPLES[3], (64, 64), Rollback.REPLAY_LAZY)
def test_any_program_reads_what_token_by_token_reads(
    program: Program, pool_sizes: tuple[int, int], rollback: Rollback
) -> None:
    run_program(hash_world(*pool_sizes, rollback=rollback), program)


@pytest.mark.parametrize("kernels", exact_kernels())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs, pools, rollbacks)
@example(EXAMPLES[0], (64, 64), Rollback.CHECKPOINT)
@example(EXAMPLES[1], (64, 64), Rollback.CHECKPOINT)
@example(EXAMPLES[2], (64, 64), Rollback.CHECKPOINT)
@example(EXAMPLES[3], (64, 64), Rollback.REPLAY)
@example(EXAMPLES[3], (64, 64), Rollback.REPLAY_LAZY)
def test_any_program_has_the_bits_of_token_by_token(
    kernels: str, program: Program, pool_sizes: tuple[int, int], rollback: Rollback
) -> None:
    world = World(tiny(SMALL, kernels, block_size=4), *pool_sizes, rollback=rollback)
    run_program(world, program)


@pytest.fixture(params=Rollback, ids=lambda rollback: rollback.value)
def rollback(request: pytest.FixtureRequest) -> Rollback:
    return Rollback(request.param)


@pytest.fixture(params=["names what it reads", *exact_kernels()])
def make_world(request: pytest.FixtureRequest, rollback: Rollback) -> Worlds:
    """Blocks of 4 tokens; 64 blocks and slots unless said otherwise."""
    named = request.param == "names what it reads"
    model = hash_model(4) if named else tiny(SMALL, request.param, block_size=4)
    return lambda num_blocks=64, num_slots=64: World(
        model, num_blocks, num_slots, rollback=rollback
    )


def same_states(a: list[LayerCache], b: list[LayerCache]) -> bool:
    """All tensors that `b` has."""
    return all(same_bits(x[n], y[n]) for x, y in zip(a, b, strict=True) for n in y)


# Forks


def test_fork_inside_a_block_copies_only_that_block(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0, 1, 2])
    b = world.fork(a)
    assert b is not None
    assert b.held.blocks[0] == a.held.blocks[0] and b.held.blocks[1] != a.held.blocks[1]
    world.step([Part(0, (3, 3, 3)), Part(1, (1,))])
    world.step([Part(0, (2,)), Part(1, (1, 0, 0, 2, 2))])
    world.close()


def test_fork_on_a_block_boundary_copies_nothing(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0])
    b = world.fork(a)
    assert b is not None and b.held.blocks == a.held.blocks and b.held.slot == a.held.slot
    world.step([Part(1, (1,)), Part(0, (2,))])
    world.close()


def test_fork_of_nothing_is_a_new_sequence(make_world: Worlds) -> None:
    world = make_world()
    world.fork(world.start())
    world.step([Part(0, (1,)), Part(1, (2, 3))])
    world.close()


def test_twins_leave_their_shared_state_in_one_pass(make_world: Worlds) -> None:
    """Both load the same slot, neither may store there."""
    world = make_world()
    a = world.start([1, 2])
    twins = [world.fork(a), world.fork(a)]
    shared = a.held.slot
    assert all(t is not None and t.held.slot == shared for t in twins)
    world.step([Part(2, (3,)), Part(0, (1, 1, 1), 2, 0), Part(1, (0,))])
    assert len({e.held.slot for e in world.seqs} | {shared}) == 4
    world.close()


def test_the_last_twin_owns_the_state_again(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2])
    world.fork(a)
    slot = a.held.slot
    world.free(world.seqs[1])
    world.run(a, [3])
    assert a.held.slot == slot, "alone again, so in place"
    world.close()


def test_fork_while_a_parent_is_freed(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0, 1])
    world.fork(a)
    world.free(a)
    world.run(world.seqs[0], [2, 2, 2, 2])
    world.close()


# Drafts


@pytest.mark.parametrize("num_kept", [1, 2, 3, 5])
def test_rejected_drafts_leave_no_trace(make_world: Worlds, num_kept: int) -> None:
    world = make_world()
    a = world.start([1, 2, 3])
    world.verify(a, [0, 1, 2, 3, 1], num_kept)
    assert len(a.held.blocks) == -(-(3 + num_kept) // 4)
    assert world.manager.slots.num_used == 1
    world.run(a, [2])
    world.close()


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 4])
@pytest.mark.parametrize("length", range(1, 9))
def test_prompt_of_one_plus_k_tokens_is_not_taken_for_a_verify_step(
    make_world: Worlds, num_drafts: int, length: int
) -> None:
    """cases.md P1: alone, and as several equal prompts batched."""
    world = make_world()
    prompt = tuple((3 * i + 1) % 4 for i in range(length))
    for _ in range(3):
        world.start()
    world.step([Part(i, prompt) for i in range(3)])
    for _ in range(2):
        world.step([Part(i, (1,) * (1 + num_drafts), num_drafts, i) for i in range(3)])
    world.run(world.start(), prompt)
    world.close()


def test_prompt_with_drafts_at_its_end(make_world: Worlds) -> None:
    """The first pass of a sequence may have drafts: the zero state is never written."""
    world = make_world()
    a = world.start()
    world.step([Part(0, (1, 2, 3, 0, 1, 2, 3), 3, 1)])
    assert a.held.slot != NULL
    world.close()


def test_alternating_verify_and_ordinary_steps(make_world: Worlds) -> None:
    """cases.md P4: after m kept drafts an ordinary step reads the kept state, not the first."""
    world = make_world()
    a = world.start([1])
    for i in range(12):
        world.verify(a, [i % 4, (i + 1) % 4, 3, 1], 1 + i % 4)
        world.run(a, [i % 3])
    world.close()


def test_drafts_never_decide_which_slot_is_overwritten(make_world: Worlds) -> None:
    """cases.md P22: before commit the own slot holds the state after the certain token."""
    world = make_world()
    a = world.start([1, 2, 3])
    own = a.held.slot
    r = world.manager.reserve(a.held, 4, num_drafts=3)
    assert r.load_slot == own and r.store_slots[0] == own
    if world.rollback.has_log:
        assert r.store_slots[1:] == (SKIP,) * 3 and r.num_logged == 3
    else:
        assert len({*r.store_slots}) == 4 and SKIP not in r.store_slots
    world.manager.abort(r)
    world.close()


def test_drafts_of_a_shared_sequence(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0])
    snap = world.snapshot(a)
    world.verify(a, [1, 2, 3], 1)
    world.verify(world.resume(snap), [1, 2, 3], 3)
    world.verify(world.resume(snap), [3, 2, 1, 0, 1, 2], 2)
    world.close()


def test_what_is_kept_is_in_the_log_until_it_is_folded(make_world: Worlds) -> None:
    """The same for whoever shares it: a twin, a snapshot, a resumed sequence."""
    world = make_world()
    a = world.start([1, 2, 3])
    world.verify(a, [0, 1, 2, 3, 1], 5)
    lazy = world.rollback is Rollback.REPLAY_LAZY
    assert a.held.num_pending == (4 if lazy else 0)
    assert same_states(world.state(a), world.oracle.states(a.history))
    twin, snap = world.fork(a), world.snapshot(a)
    assert twin is not None
    for entry in (twin, snap, world.resume(snap)):
        assert (entry.held.slot, entry.held.num_pending) == (a.held.slot, a.held.num_pending)
    world.step([Part(0, (1, 2), 1, 1), Part(1, (3,)), Part(2, (2, 2, 0), 2, 0)])
    assert [e.held.num_pending for e in world.seqs] == ([1, 0, 0] if lazy else [0, 0, 0])
    world.close()


def test_a_shared_state_is_not_folded_in_place(make_world: Worlds) -> None:
    """The snapshot captured among the drafts is behind by fewer tokens than the sequence."""
    world = make_world()
    a = world.start([1, 2])
    (snap,) = world.step([Part(0, (3, 0, 1), 2, 2, capture=True)])
    if world.rollback.has_log:
        assert snap.held.slot == a.held.slot
        assert (snap.held.num_pending, a.held.num_pending) == (1, 2)
    for entry in (snap, a):
        assert same_states(world.state(entry), world.oracle.states(entry.history))
    world.run(a, [1])
    assert a.held.slot != snap.held.slot and not a.held.num_pending
    world.verify(world.resume(snap), [2, 2], 2)
    world.close()


# Captures


def test_captures_inside_a_chunk_and_at_its_end(make_world: Worlds) -> None:
    world = make_world()
    a = world.start()
    snaps = world.run(a, [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0], capture=True)
    assert [len(s.history) for s in snaps] == [4, 8, 12]
    assert snaps[-1].held.slot == a.held.slot, "the last one costs no slot of its own"
    assert world.manager.slots.num_used == 3
    for snap in snaps:
        world.run(world.resume(snap), [2, 1])
    world.run(a, [3])
    world.close()


def test_snapshots_of_three_sequences_in_one_step(make_world: Worlds) -> None:
    """cases.md S25: each snapshot holds its own row's state."""
    world = make_world()
    for n in range(3):
        world.start([n] * (n + 1))
    snaps = world.step([Part(i, (3, 2, 1, 0), capture=True) for i in range(3)])
    assert [len(s.history) for s in snaps] == [4, 4, 4]
    for snap in snaps:
        twin = world.resume(snap)
        assert same_states(world.state(twin), world.oracle.states(snap.history))
        world.run(twin, [1])
    world.close()


@pytest.mark.parametrize("num_kept", [1, 2, 3, 4, 5, 6])
def test_captures_among_drafts(make_world: Worlds, num_kept: int) -> None:
    """A capture at a draft lives exactly if the draft is kept."""
    world = make_world()
    a = world.start([1, 2])
    part = Part(0, (3, 0, 1, 2, 3, 0), 5, num_kept - 1, capture=True)
    snaps = world.step([part])
    assert [len(s.history) for s in snaps] == [n for n in (4, 8) if n <= 2 + num_kept]
    for snap in snaps:
        world.verify(world.resume(snap), [1, 1], 1)
    world.run(a, [0])
    world.close()


def test_capture_at_the_last_certain_token_before_drafts(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2])
    own = a.held.slot
    (snap,) = world.step([Part(0, (3, 0, 1, 2), 2, 2, capture=True)])
    if world.rollback.has_log:
        assert snap.held.slot == own == a.held.slot, "the sequence is two tokens further"
        assert (snap.held.num_pending, a.held.num_pending) == (0, 2)
    else:
        assert snap.held.slot == own != a.held.slot, "the snapshot keeps the slot stored in place"
    world.run(world.resume(snap), [3, 3])
    world.run(a, [0])
    world.close()


def test_capture_while_the_state_is_shared(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0])
    first = world.snapshot(a)
    (second,) = world.run(a, [1, 2, 3, 0], capture=True)
    (third,) = world.run(world.resume(first), [3, 2, 1, 0], capture=True)
    world.drop(first)
    for snap in (second, third):
        world.run(world.resume(snap), [2])
    world.close()


def test_captures_of_an_aborted_step_are_returned(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0])
    world.snapshot(a)
    for outcome in (Outcome.ABORT_UNRUN, Outcome.ABORT, Outcome.CRASH):
        part = Part(0, (1, 2, 3, 0, 1, 2, 3, 0, 1), 2, 0, capture=True, outcome=outcome)
        assert world.step([part]) == []
        assert world.manager.slots.num_used == 1
    world.run(a, [1, 2])
    world.close()


@pytest.mark.parametrize("kernels", exact_kernels())
@pytest.mark.parametrize("length", [128, 129])
def test_state_captured_at_64_and_128_is_that_after_as_many_single_steps(
    kernels: str, length: int
) -> None:
    """cases.md S8"""
    world = World(tiny(SMALL, kernels, block_size=16), 16, 16)
    history = [(5 * i + i // 7) % 32 for i in range(length)]
    world.run(world.start(), history, capture=True)
    for n in (64, 128):
        snap = next(s for s in world.snaps if len(s.history) == n)
        assert same_states(world.state(snap), world.oracle.states(history[:n]))
    world.close()


# Snapshots and resumes


def test_resume_on_the_empty_snapshot_starts_at_the_zero_state(make_world: Worlds) -> None:
    world = make_world()
    snap = world.snapshot(world.start())
    assert snap.held.slot == NULL and snap.held.blocks == ()
    world.run(world.resume(snap), [1, 2])
    world.run(world.resume(snap), [3])
    world.close()


def test_snapshot_outlives_its_sequence(make_world: Worlds) -> None:
    world = make_world()
    a = world.start([1, 2, 3, 0])
    snap = world.snapshot(a)
    world.free(a)
    b = world.resume(snap)
    world.drop(snap)
    world.run(b, [1])
    world.close()


def test_a_prefix_used_five_times_stays_the_same_bits(make_world: Worlds) -> None:
    """cases.md S14, at the memory layer: blocks and slot of a snapshot before and after."""
    world = make_world()
    snap = world.snapshot(world.start([1, 2, 3, 0, 1, 2, 3, 0]))
    size = world.block_size

    def checksum() -> list[object]:
        rows = [b * size + i for b in snap.held.blocks for i in range(size)]
        return [
            *[bits(t[rows]).tolist() for kv in world.storage.paged for t in kv.values()],
            *[bits(t[snap.held.slot]).tolist() for s in world.storage.state for t in s.values()],
        ]

    before = checksum()
    for i in range(5):
        twin = world.resume(snap)
        world.run(twin, [i % 4, 1, 2])
        for _ in range(6):
            world.verify(twin, [1, i % 4, 3], 1 + i % 3)
        world.free(twin)
        assert checksum() == before
    world.close()


# Resuming below known KV rows


def deeper(world: World) -> tuple[World, int]:
    """A snapshot at 4, and a sequence with 13 tokens of the same beginning."""
    donor = world.start()
    world.run(donor, [1, 2, 3, 0], capture=True)
    world.run(donor, [1, 2, 3, 0, 3, 3, 3, 3, 2])
    return world, 2  # full blocks beyond the snapshot


def test_written_rows_are_read_and_never_written(make_world: Worlds) -> None:
    world, deep = deeper(make_world())
    donor, snap = world.seqs[0], world.snaps[0]
    twin = world.resume(snap, donor)
    assert twin.held.num_written == 4 + 4 * deep and twin.held.num_computed == 4
    assert twin.held.blocks == donor.held.blocks[:3]
    r = world.manager.reserve(twin.held, 9)
    make = world.code.batch.SequenceInput
    batch = world.code.batch.ForwardBatch.prefill(
        make([*twin.known, 0], 4, twin.held.blocks, r.load_slot, r.store_slots, 12), block_size=4
    )
    assert batch.paged.slot_mapping.tolist() == [*[SKIP] * 8, twin.held.blocks[3] * 4]
    world.manager.abort(r)
    world.run(twin, [0] * 9)
    world.close()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9])
def test_recomputing_below_written_rows_in_chunks(make_world: Worlds, size: int) -> None:
    world, _ = deeper(make_world())
    twin = world.resume(world.snaps[0], world.seqs[0])
    for _ in range(0, 12, size):
        world.run(twin, [2] * size)
    world.close()


def test_capture_at_the_floor_of_the_match_while_recomputing(make_world: Worlds) -> None:
    """The next branch there is free."""
    world, _ = deeper(make_world())
    twin = world.resume(world.snaps[0], world.seqs[0])
    snaps = world.run(twin, [0] * 10, capture=True)
    assert [len(s.history) for s in snaps] == [8, 12]
    assert snaps[-1].held.blocks == tuple(world.seqs[0].held.blocks[:3])
    world.run(world.resume(snaps[-1]), [1, 1])
    world.close()


def test_fork_and_drafts_below_written_rows(make_world: Worlds) -> None:
    world, _ = deeper(make_world())
    twin = world.resume(world.snaps[0], world.seqs[0])
    world.run(twin, [0])
    other = world.fork(twin)
    assert other is not None and other.held.blocks == twin.held.blocks, "no copy is needed"
    world.verify(twin, [0] * 5, 2)
    assert len(twin.held.blocks) == 3, "rejected drafts do not give up written blocks"
    world.step([Part(world.seqs.index(e), (1,) * 9, 4, 1) for e in (twin, other)])
    world.close()


def test_donor_and_snapshot_may_go_while_their_rows_are_in_use(make_world: Worlds) -> None:
    world, _ = deeper(make_world())
    twin = world.resume(world.snaps[0], world.seqs[0])
    world.free(world.seqs[0])
    world.drop(world.snaps[0])
    world.run(twin, [0] * 5)
    world.run(twin, [0] * 5)
    world.close()


def test_whole_prompt_is_written_but_no_state_is_left(make_world: Worlds) -> None:
    """States may be evicted first: resume from nothing below known rows."""
    world = make_world()
    empty = world.snapshot(world.start())
    donor = world.start([1, 2, 3, 0, 1, 2, 3, 0])
    twin = world.resume(empty, donor)
    assert twin.held.num_written == 8 and twin.held.slot == NULL
    world.run(twin, [0] * 3)
    world.run(twin, [0] * 6)
    world.close()


def test_abort_below_written_rows_keeps_them(make_world: Worlds) -> None:
    world, _ = deeper(make_world())
    twin = world.resume(world.snaps[0], world.seqs[0])
    i = world.seqs.index(twin)
    world.step([Part(i, (0,) * 11, 2, 0, outcome=Outcome.ABORT)])
    assert len(twin.held.blocks) == 3
    world.run(twin, [0] * 11)
    world.close()


def test_rebuilt_after_a_failed_pass(make_world: Worlds) -> None:
    """What a pass left half-written is gone once the sequence starts from its last snapshot."""
    world = make_world()
    a = world.start()
    (snap,) = world.run(a, [1, 2, 3, 0], capture=True)
    world.run(a, [1, 2])
    history = list(a.history)
    world.step([Part(0, (3, 3, 3), 1, 0, outcome=Outcome.CRASH)])
    b = world.resume(snap)
    world.run(b, history[4:])
    world.run(b, [3, 3])
    world.close()


# Running out


def test_out_of_blocks_changes_nothing_and_says_how_many(make_world: Worlds) -> None:
    world = make_world(num_blocks=4)
    a = world.start([1] * 7)
    with pytest.raises(OutOfCache, match="2 blocks and 0 state slots"):
        world.manager.reserve(a.held, 10)
    assert not a.held.reserved
    world.run(a, [2] * 5)
    assert world.step([Part(0, (1,))]) == [] and world.num_refused == 1
    world.close()


def test_out_of_slots_changes_nothing_and_says_how_many(make_world: Worlds) -> None:
    world = make_world(num_slots=3)
    a = world.start([1, 2, 3])
    world.verify(a, [0, 1, 2], 1)
    assert world.num_refused == (not world.rollback.has_log), "a log wants no slots"
    world.verify(a, [0, 1], 2)
    ends = [n - len(a.history) - 1 for n in (8, 12)]
    with pytest.raises(OutOfCache, match="0 blocks and 1 state slots"):
        world.manager.reserve(a.held, 9, capture_at=ends)
    world.close()


def test_out_of_both(make_world: Worlds) -> None:
    world = make_world(num_blocks=3, num_slots=2)
    a = world.start([1, 2, 3])
    num_slots = 1 if world.rollback.has_log else 4
    with pytest.raises(OutOfCache, match=f"2 blocks and {num_slots} state slots"):
        world.manager.reserve(a.held, 13, num_drafts=3, capture_at=[0])
    world.close()


def test_shared_state_needs_a_slot_more_than_it_has(make_world: Worlds) -> None:
    world = make_world(num_slots=2)
    a = world.start([1, 2, 3, 0])
    snap = world.snapshot(a)
    world.run(a, [1])
    assert world.num_refused == 1
    world.drop(snap)
    world.run(a, [1])
    assert world.num_refused == 1
    world.close()


def test_fork_without_a_block_for_the_copy(make_world: Worlds) -> None:
    world = make_world(num_blocks=3)
    a = world.start([1, 2, 3, 0, 1])
    assert world.fork(a) is None
    world.run(a, [2, 2, 2])
    twin = world.fork(a)
    assert twin is not None, "on a boundary it needs none"
    world.run(twin, [1])
    assert world.num_refused == 2
    world.close()


def test_one_of_two_is_refused_and_the_other_runs(make_world: Worlds) -> None:
    world = make_world(num_blocks=4)
    world.start()
    world.start()
    world.step([Part(0, (1,) * 8), Part(1, (2,) * 8)])
    assert [len(e.history) for e in world.seqs] == [8, 0] and world.num_refused == 1
    world.free(world.seqs[0])
    world.run(world.seqs[0], [2] * 8)
    world.close()


def test_memory_of_an_aborted_step_serves_another(make_world: Worlds) -> None:
    world = make_world(num_blocks=4, num_slots=4)
    world.start([1])
    world.start([2])
    for _ in range(3):
        world.step([Part(0, (3,) * 8, 1, 0, outcome=Outcome.ABORT_UNRUN), Part(1, (1,))])
    world.close()


# Padding


@pytest.mark.parametrize("padding", [(0,), (1,), (5,), (0, 0), (2, 0, 3), (1, 1, 1)])
def test_padding_rows_change_nothing(make_world: Worlds, padding: tuple[int, ...]) -> None:
    """cases.md S22, N11: pads neither write nor shift anything."""
    world = make_world()
    world.start([1, 2])
    world.start()
    world.step([Part(0, (3,)), Part(1, (1, 2, 3, 0, 1), 2, 1, capture=True)], padding)
    before = bits_of(world.storage)
    world.step([], padding)
    assert same(before, bits_of(world.storage))
    world.close()


def test_ragged_prompts_together_equal_alone(make_world: Worlds) -> None:
    """cases.md S22, N3: every row is compared with the same sequence alone."""
    world = make_world(256)
    lengths = (1, 15, 16, 17, 33, 49, 63, 65)
    for _ in lengths:
        world.start()
    world.step(
        [Part(i, tuple((i + j) % 4 for j in range(n))) for i, n in enumerate(lengths)], (3, 1)
    )
    world.step([Part(i, (1,)) for i in range(len(lengths))])
    world.close()


def test_ids_that_were_used_before_carry_nothing_over(make_world: Worlds) -> None:
    """cases.md S5, S20: recycled blocks and slots are NaN until written."""
    world = make_world(num_blocks=4, num_slots=3)
    for length in (1, 3, 4, 5, 11, 12):
        a = world.start([i % 4 for i in range(length)])
        world.verify(a, [3], 1)
        world.free(a)
    world.close()
