"""Law 3 of every architecture with every type of weights: logits and cache rows, `==`.

A `World` compares every row with the same model run one token at a time from nothing, in other
blocks and slots. CI runs each architecture and each type at least once; `-m slow` every pair.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch

from checkpoints import ARCHITECTURES
from families import KINDS, K, build, stored
from harness import Oracle, poison, same_bits
from kernel_cases import CHUNKS, THREADS, chunks, whole_pass
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import NULL, SKIP
from thalweg.memory.storage import CacheStorage
from thalweg.ops import extension
from thalweg.ops.weight import Matrix
from world import Part, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness import Tiny

LENGTH = 130
BATCHES = (1, 2, 3, 7, 8, 64, 513)
FAST = set(zip(itertools.cycle(ARCHITECTURES), KINDS, strict=False))

each_pair = pytest.mark.parametrize(
    ("model_type", "kind"),
    [
        pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow)
        for pair in itertools.product(ARCHITECTURES, KINDS)
    ],
)


def prompt(length: int) -> list[int]:
    return [(7 * i + i * i // 5 + i // 3) % 512 for i in range(length)]


@dataclass(slots=True, eq=False)
class Running:
    history: list[int]
    blocks: list[int]
    slot: int


class Passes:
    """Sequences in scattered blocks and slots of poisoned pools."""

    def __init__(self, model: Tiny, expected: Oracle, lengths: Sequence[int]) -> None:
        self.model, self.expected = model, expected
        each = -(-max(lengths) // model.block_size) + 1
        num_blocks = each * len(lengths)
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(3)) + 1
        self.seqs = [
            Running([], order[i * each : (i + 1) * each].tolist(), len(lengths) - i)
            for i in range(len(lengths))
        ]
        self.storage = CacheStorage(
            model.cache_specs, num_blocks + 1, len(lengths) + 1, block_size=model.block_size
        )
        poison(self.storage)
        self.run(dict(enumerate(map(prompt, lengths))))

    def run(self, new: Mapping[int, list[int]]) -> None:
        """One pass of these tokens, by sequence; each row is compared."""
        inputs, rows = [], []
        for i, tokens in new.items():
            seq = self.seqs[i]
            load, stores = seq.slot if seq.history else NULL, [SKIP] * (len(tokens) - 1)
            start = len(seq.history)
            inputs.append(SequenceInput(tokens, start, seq.blocks, load, [*stores, seq.slot]))
            seq.history += tokens
            rows.append(self.expected.rows(seq.history)[start:])
        batch = ForwardBatch.ragged(inputs, [], block_size=self.model.block_size)
        hidden = self.model.model(batch, self.storage.layers)
        assert same_bits(hidden, torch.cat(rows))

    def check_caches(self, i: int) -> None:
        seq = self.seqs[i]
        check_caches(self.storage, self.expected, seq.history, seq.blocks, seq.slot)


def check_caches(
    storage: CacheStorage, expected: Oracle, history: list[int], blocks: list[int], slot: int
) -> None:
    """A sequence's state and all its KV rows are those of single tokens."""
    for layer, single in zip(storage.state, expected.states(history), strict=True):
        for name, state in single.items():
            assert same_bits(layer[name][slot], state)
    for p in range(len(history)):
        row = blocks[p // storage.block_size] * storage.block_size + p % storage.block_size
        node = expected.nodes[tuple(history[: p + 1])]
        for layer, written in zip(storage.paged, node.kv, strict=True):
            for name, rows in layer.items():
                assert same_bits(rows[row], written[name])


@each_pair
def test_chunks_and_company_change_nothing(model_type: str, kind: str) -> None:
    model = build(model_type, kind)
    world = World(model, 16, 8)
    for size in (*CHUNKS, LENGTH):
        entry, mate = world.start(), world.start(prompt(3 + size % 5))
        for i, part in enumerate(chunks(LENGTH, size)):
            tokens = prompt(LENGTH)[part.start : part.stop]
            company = [Part(world.seqs.index(mate), (i % 9,))] if i % 3 else []
            world.step([*company, Part(world.seqs.index(entry), tuple(tokens))])
            if i % 8 == 7:  # one leaves, another joins
                world.free(mate)
                mate = world.start(prompt(1 + i % 7))
        held = entry.held
        check_caches(world.storage, world.oracle, entry.history, held.blocks, held.slot)
        world.free(mate)
        world.free(entry)
    world.close()


@each_pair
def test_batches_change_nothing(model_type: str, kind: str) -> None:
    """Of sequences, of a prompt's rows, and of rows whose logits are wanted."""
    table = stored("embed_tokens.weight", torch.randn(512, K), kind)
    matrix = Matrix((table,), torch.float32, torch.device("cpu"))
    assert extension.packed(matrix).format == kind

    model = build(model_type, kind)
    expected = Oracle(model, 576)
    Passes(model, expected, [513]).check_caches(0)
    many = Passes(model, expected, [1 + i % 5 for i in range(513)])
    for n in BATCHES:
        many.run({5 * i % 513: [i % 7] for i in range(n)})
    for i in (0, 1, 5, 511, 512):
        many.check_caches(i)

    hidden = expected.rows(prompt(513))
    logits = model.decoder.logits(hidden)
    for n in BATCHES:
        for rows in (slice(0, n), slice(513 - n, 513)):
            assert same_bits(model.decoder.logits(hidden[rows]), logits[rows])


@each_pair
def test_threads_and_levels_change_nothing(model_type: str, kind: str) -> None:
    kernels = extension.kernels()
    expected = None
    for level in kernels.levels():
        kernels.set_level(level)
        model = build(model_type, kind)
        for threads in THREADS if level != "portable" else THREADS[1:2]:
            kernels.set_num_threads(threads)
            outputs = whole_pass(model)
            expected = expected or outputs
            assert all(same_bits(a, b) for a, b in zip(outputs, expected, strict=True)), level
