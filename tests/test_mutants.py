"""The laws are worth what they catch: each of these faults breaks one of some fixed programs."""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import thalweg.batch
import thalweg.memory.manager
from programs import EXAMPLES, Program, random_program, run_program
from thalweg.config import Rollback
from world import Code, hash_world

MANAGER, BATCH = thalweg.memory.manager, thalweg.batch
POOLS = ((64, 64), (64, 64), (10, 7), (16, 5))


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    module: ModuleType
    original: str
    changed: str


MUTANTS = [
    Mutant(
        "shared state is overwritten in place",
        MANAGER,
        "in_place = self.slots.exclusive(seq.slot)",
        "in_place = seq.slot != NULL",
    ),
    Mutant(
        "state is never kept in place, the old slot leaks",
        MANAGER,
        "self._release_slots({r.load_slot, *r.store_slots} - {seq.slot})",
        "self._release_slots({*r.store_slots} - {seq.slot})",
    ),
    Mutant(
        "a snapshot does not share its slot",
        MANAGER,
        "blocks, self.slots.share(slot), num_pending)",
        "blocks, slot, num_pending)",
    ),
    Mutant(
        "a snapshot does not share its blocks",
        MANAGER,
        "tuple(map(self.blocks.share, seq.blocks[: num_computed // self.block_size]))",
        "tuple(seq.blocks[: num_computed // self.block_size])",
    ),
    Mutant(
        "the state after the last draft is kept",
        MANAGER,
        "seq.slot, seq.num_pending = r.state_after(num_kept - 1)",
        "seq.slot, seq.num_pending = r.state_after(r.num_new - 1)",
    ),
    Mutant(
        "the state before the last kept token is kept",
        MANAGER,
        "seq.slot, seq.num_pending = r.state_after(num_kept - 1)",
        "seq.slot, seq.num_pending = r.state_after("
        "max(r.num_new - r.num_drafts - 1, num_kept - 2))",
    ),
    Mutant(
        "all new tokens become history",
        MANAGER,
        "seq.num_computed += num_kept",
        "seq.num_computed += r.num_new",
    ),
    Mutant(
        "slots of rejected drafts leak",
        MANAGER,
        "self._release_slots({r.load_slot, *r.store_slots} - {seq.slot})",
        "self._release_slots({r.load_slot, *r.store_slots[:num_kept]} - {seq.slot})",
    ),
    Mutant(
        "blocks of rejected drafts leak",
        MANAGER,
        "            self.blocks.release(seq.blocks.pop())\n",
        "            seq.blocks.pop()\n",
    ),
    Mutant(
        "blocks of rejected drafts stay with the sequence",
        MANAGER,
        "used = self._blocks_for(max(seq.num_computed, seq.num_written))",
        "used = len(seq.blocks)",
    ),
    Mutant(
        "written blocks are given up at commit",
        MANAGER,
        "used = self._blocks_for(max(seq.num_computed, seq.num_written))",
        "used = self._blocks_for(seq.num_computed)",
    ),
    Mutant(
        "one block too few at a boundary",
        MANAGER,
        "return -(-num_tokens // self.block_size)",
        "return -(-(num_tokens - 1) // self.block_size)",
    ),
    Mutant(
        "a capture is released with the reservation",
        MANAGER,
        "        self._close(seq)\n        return snapshots\n",
        "        self._close(seq)\n"
        "        self._release_slots({s.slot for s in snapshots} - {seq.slot})\n"
        "        return snapshots\n",
    ),
    Mutant(
        "captures are off by one token",
        MANAGER,
        "self._prefix(seq, seq.num_computed + i + 1, r.state_after(i))",
        "self._prefix(seq, seq.num_computed + i + 1, r.state_after(max(0, i - 1)))",
    ),
    Mutant(
        "captures of rejected drafts are handed out",
        MANAGER,
        "            if i < num_kept\n",
        "",
    ),
    Mutant(
        "an abort frees the sequence's own slot",
        MANAGER,
        "[slot for slot in reversed(r.store_slots) if slot != r.load_slot]",
        "[slot for slot in reversed(r.store_slots)]",
    ),
    Mutant(
        "an abort leaks its slots",
        MANAGER,
        "[slot for slot in reversed(r.store_slots) if slot != r.load_slot]",
        "()",
    ),
    Mutant(
        "a fork shares its part-filled block",
        MANAGER,
        "            blocks.append(self.blocks.acquire())\n"
        "            copies = (BlockCopy(seq.blocks[full], blocks[-1], part),)\n",
        "            blocks.append(self.blocks.share(seq.blocks[full]))\n",
    ),
    Mutant(
        "a fork's block copy is skipped",
        MANAGER,
        "            copies = (BlockCopy(seq.blocks[full], blocks[-1], part),)\n",
        "",
    ),
    Mutant(
        "a fork's block copy lacks the last row",
        MANAGER,
        "BlockCopy(seq.blocks[full], blocks[-1], part)",
        "BlockCopy(seq.blocks[full], blocks[-1], part - 1)",
    ),
    Mutant(
        "a fork forgets which rows are written",
        MANAGER,
        "twin = Sequence(seq.num_computed, seq.num_written, blocks, slot, seq.num_pending)",
        "twin = Sequence(seq.num_computed, 0, blocks, slot, seq.num_pending)",
    ),
    Mutant(
        "a resumed sequence forgets which rows are written",
        MANAGER,
        "            len(blocks) * self.block_size,\n",
        "            0,\n",
    ),
    Mutant(
        "running out of slots is found after blocks were taken",
        MANAGER,
        "        if short.blocks or short.slots:\n"
        "            raise short\n"
        "        seq.blocks += [self.blocks.acquire() for _ in range(num_blocks)]\n",
        "        if short.blocks:\n"
        "            raise short\n"
        "        seq.blocks += [self.blocks.acquire() for _ in range(num_blocks)]\n"
        "        if short.slots:\n"
        "            raise short\n",
    ),
    Mutant(
        "captures are not counted when slots run out",
        MANAGER,
        "num_slots = num_spare + len(early) + (not in_place)",
        "num_slots = num_spare + (not in_place)",
    ),
    Mutant(
        "a freed sequence keeps its slot",
        MANAGER,
        "        self.slots.release(seq.slot)\n        seq.num_computed =",
        "        seq.num_computed =",
    ),
    Mutant(
        "what is pending is forgotten by a fork",
        MANAGER,
        "twin = Sequence(seq.num_computed, seq.num_written, blocks, slot, seq.num_pending)",
        "twin = Sequence(seq.num_computed, seq.num_written, blocks, slot)",
    ),
    Mutant(
        "what is pending is forgotten by a snapshot",
        MANAGER,
        "self.slots.share(slot), num_pending)",
        "self.slots.share(slot))",
    ),
    Mutant(
        "what is pending is forgotten by a resumed sequence",
        MANAGER,
        "            snapshot.num_pending,\n",
        "",
    ),
    Mutant(
        "a pass starts before what is pending",
        MANAGER,
        "return Reservation(seq, num_drafts, seq.slot, seq.num_pending,",
        "return Reservation(seq, num_drafts, seq.slot, 0,",
    ),
    Mutant(
        "a shared state is folded in place",
        MANAGER,
        "if not self.slots.exclusive(seq.slot):\n            return ()",
        "if seq.slot == NULL:\n            return ()",
    ),
    Mutant(
        "a state is folded twice",
        MANAGER,
        "num_pending, seq.num_pending = seq.num_pending, 0",
        "num_pending, seq.num_pending = seq.num_pending, seq.num_pending",
    ),
    Mutant(
        "what is pending survives its sequence",
        MANAGER,
        "seq.num_computed = seq.num_written = seq.num_pending = 0",
        "seq.num_computed = seq.num_written = 0",
    ),
    Mutant(
        "the first row of the log is never read",
        BATCH,
        "pending += range(s.load_slot * log_size, s.load_slot * log_size + s.num_pending)",
        "pending += range(s.load_slot * log_size + 1, s.load_slot * log_size + 1 + s.num_pending)",
    ),
    Mutant(
        "the log is read from the slot that is stored to",
        BATCH,
        "pending += range(s.load_slot * log_size, s.load_slot * log_size + s.num_pending)",
        "pending += range((at := ([s.fold_slot, *s.store_slots])[-s.num_logged - 1]) * log_size, "
        "at * log_size + s.num_pending)",
    ),
    Mutant(
        "drafts are logged in the slot that was loaded",
        BATCH,
        "first = s.store_slots[-s.num_logged - 1] * log_size",
        "first = s.load_slot * log_size",
    ),
    Mutant(
        "the certain token is logged for the first draft",
        BATCH,
        "logged += range(token + num_new - s.num_logged, token + num_new)",
        "logged += range(token + num_new - s.num_logged - 1, token + num_new - 1)",
    ),
    Mutant(
        "new rows come before those pending",
        BATCH,
        "            pending_at += range(row, row + s.num_pending)\n"
        "            new_at += range(row + s.num_pending, row + s.num_pending + num_new)\n",
        "            new_at += range(row, row + num_new)\n"
        "            pending_at += range(row + num_new, row + s.num_pending + num_new)\n",
    ),
    Mutant(
        "written rows are written again",
        BATCH,
        "SKIP if p < seq.num_written else ",
        "",
    ),
    Mutant(
        "one row too many is taken for written",
        BATCH,
        "SKIP if p < seq.num_written else ",
        "SKIP if 0 < seq.num_written >= p else ",
    ),
    Mutant(
        "rows lie one further in their block",
        BATCH,
        "seq.blocks[p // block_size] * block_size + p % block_size",
        "seq.blocks[p // block_size] * block_size + (p + 1) % block_size",
    ),
    Mutant(
        "a context lacks its last new token",
        BATCH,
        "return self.start + len(self.token_ids) if self.blocks else 0",
        "return self.start + max(1, len(self.token_ids) - 1) if self.blocks else 0",
    ),
    Mutant(
        "padding is given a context",
        BATCH,
        "return self.start + len(self.token_ids) if self.blocks else 0",
        "return self.start + len(self.token_ids)",
    ),
    Mutant(
        "sequences' ranges are in another order than their tokens",
        BATCH,
        "cu_seqlens=int32(list(accumulate(lens, initial=0)))",
        "cu_seqlens=int32(list(accumulate(sorted(lens), initial=0)))",
    ),
    Mutant(
        "block tables are padded in front",
        BATCH,
        "row[: len(seq.blocks)] = seq.blocks",
        "row[len(row) - len(seq.blocks) :] = seq.blocks",
    ),
    Mutant(
        "states are stored in another order than tokens",
        BATCH,
        "store_slots = list(chain.from_iterable(s.store_slots for s in seqs))",
        "store_slots = list(chain.from_iterable(s.store_slots for s in reversed(seqs)))",
    ),
    Mutant(
        "positions start again in every chunk",
        BATCH,
        "range(s.start, s.start + len(s.token_ids)) for s in seqs",
        "range(0, len(s.token_ids)) for s in seqs",
    ),
    Mutant(
        "every sequence starts from the first one's state",
        BATCH,
        "int32([s.load_slot for s in seqs])",
        "int32([seqs[0].load_slot for _ in seqs])",
    ),
]


@cache
def fixed_programs() -> list[tuple[tuple[int, int], Program]]:
    examples = [(POOLS[0], program) for program in EXAMPLES]
    rngs = [random.Random(seed) for seed in range(120)]
    return [
        *examples,
        *((POOLS[i % len(POOLS)], random_program(rng)) for i, rng in enumerate(rngs)),
    ]


def is_caught(code: Code) -> bool:
    """Whether one of the programs ends in a broken law, or in the package's own assertions."""
    rollbacks = itertools.cycle(Rollback)
    for (sizes, program), rollback in zip(fixed_programs(), rollbacks, strict=False):
        try:
            run_program(hash_world(*sizes, code, rollback), program)
        except (AssertionError, IndexError, RuntimeError, ValueError):
            return True
    return False


def mutated(mutant: Mutant) -> Code:
    assert mutant.module.__file__ is not None
    source = Path(mutant.module.__file__).read_text()
    assert source.count(mutant.original) == 1, "the text to replace is not there exactly once"
    module = ModuleType(f"mutant_of_{mutant.module.__name__}")
    sys.modules[module.__name__] = module  # where dataclasses look for annotations
    exec(
        compile(source.replace(mutant.original, mutant.changed), module.__name__, "exec"),
        module.__dict__,
    )
    return Code(manager=module) if mutant.module is MANAGER else Code(batch=module)


def test_the_package_itself_passes_all_programs() -> None:
    assert not is_caught(Code())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    assert mutant.original != mutant.changed
    assert is_caught(mutated(mutant))
