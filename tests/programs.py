"""Programs for a `World`: what a scheduler might do, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from world import Entry, Outcome, Part, World

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class Step:
    parts: tuple[Part, ...]
    padding: tuple[int, ...] = ()
    """Query lengths of padding sequences; the first one comes first, the others last."""


@dataclass(frozen=True, slots=True)
class Fork:
    index: int


@dataclass(frozen=True, slots=True)
class Snap:
    index: int


@dataclass(frozen=True, slots=True)
class Resume:
    index: int
    num_written: int = 0
    """Blocks to take over from a deeper history with the same beginning, at most."""


@dataclass(frozen=True, slots=True)
class Drop:
    index: int


@dataclass(frozen=True, slots=True)
class Free:
    index: int


Op = Step | Fork | Snap | Resume | Drop | Free
Program = tuple[Op, ...]


def _chunk(i: int, *tokens: int, capture: bool = False) -> Step:
    return Step((Part(i, tokens, capture=capture),))


EXAMPLES: tuple[Program, ...] = (
    # fork, then let the original and the twin diverge
    (
        _chunk(0, 1, 2, 3),
        Fork(0),
        _chunk(0, 3),
        _chunk(2, 2),
        Step((Part(0, (1,)), Part(2, (2,)))),
    ),
    # snapshot, go on, resume
    (
        _chunk(0, 1, 2, 3, 0),
        Snap(0),
        Step((Part(0, (1, 2, 3), 2, 1),)),
        Resume(0),
        Step((Part(2, (0, 1), 1, 0),)),
    ),
    # resume below known rows, fork there, and let both recompute them
    (
        _chunk(0, 1, 2, 3, 0, capture=True),
        _chunk(0, 1, 2, 3, 0, 1, 1, 1, 1, 2),
        Resume(0, 2),
        _chunk(2, 0, 0, 0),
        Fork(2),
        Step((Part(2, (3,) * 9, 4, 2), Part(3, (2,) * 7, capture=True))),
    ),
    # keep drafts; fork, capture, resume and verify on a state that may be behind
    (
        Step((Part(0, (1, 2, 3), 2, 2),)),
        Fork(0),
        Step((Part(0, (0, 1, 2, 3, 0), 4, 4, capture=True), Part(2, (3, 1), 1, 1))),
        Snap(0),
        Resume(0),
        Step((Part(3, (1, 1, 1), 2, 1), Part(0, (2, 2), 1, 0), Part(2, (1,)))),
        Resume(0),
        Free(0),
    ),
)


def run_program(world: World, program: Program) -> None:
    """Carry out what is possible of a program; then everything ends."""
    world.start()
    world.start()
    for op in program:
        match op:
            case Step(parts, padding):
                world.step(parts, padding)
            case Fork(i):
                if len(world.seqs) < 6:
                    world.fork(world.seqs[i % len(world.seqs)])
            case Snap(i):
                entry = world.seqs[i % len(world.seqs)]
                if len(entry.history) % world.block_size == 0 and len(world.snaps) < 6:
                    world.snapshot(entry)
            case Resume(i, num_written):
                if world.snaps and len(world.seqs) < 6:
                    snap = world.snaps[i % len(world.snaps)]
                    world.resume(snap, _donor(world, snap), num_written)
            case Drop(i):
                if world.snaps:
                    world.drop(world.snaps[i % len(world.snaps)])
            case Free(i):
                world.free(world.seqs[i % len(world.seqs)])
                if not world.seqs:
                    world.start()
    world.close()


def _donor(world: World, snap: Entry) -> Entry | None:
    """The deepest history that begins with the snapshot's."""
    n = len(snap.history)
    deeper = [e for e in [*world.seqs, *world.snaps] if e.history[:n] == snap.history]
    return max(deeper, key=lambda e: len(e.history), default=None)


def random_program(rng: random.Random, num_ops: int = 14) -> Program:
    """For runs with fixed seeds; hypothesis has its own strategy."""
    return tuple(_random_op(rng) for _ in range(num_ops))


def _random_op(rng: random.Random) -> Op:
    i = rng.randrange(6)
    others = (Fork(i), Snap(i), Resume(i, rng.randrange(3)), Drop(i), Free(i))
    op = rng.choices((None, *others), (8, 2, 3, 3, 1, 1))[0]
    return op or _random_step(rng)


def _random_step(rng: random.Random) -> Step:
    parts = (
        Part(
            rng.randrange(6),
            tuple(rng.randrange(4) for _ in range(rng.choice((1, 1, 2, 3, 4, 5, 8, 9)))),
            rng.randrange(5),
            rng.randrange(5),
            rng.random() < 0.4,
            rng.choices(list(Outcome), (9, 1, 1, 1))[0],
        )
        for _ in range(rng.randint(1, 4))
    )
    padding = tuple(rng.randrange(4) for _ in range(rng.choice((0, 0, 1, 2))))
    return Step(tuple(parts), padding)
