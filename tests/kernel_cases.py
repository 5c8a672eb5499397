"""What the tests of the compiled kernels vary: nothing of it may change a bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from op_cases import bind
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import NULL, SKIP
from thalweg.memory.storage import CacheStorage
from thalweg.ops import extension
from thalweg.ops.registry import Op, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from harness import Tiny

P = TypeVar("P", bound=Problem)

THREADS = (1, 2, 3, 8)
BATCHES = (1, 2, 3, 7, 8, 64)
CHUNKS = (1, 2, 3, 7, 16, 63, 64, 65, 100)


def compiled(op: Op[P, Any], problem: P) -> Any:
    """The op on the compiled kernels. Untyped: tests pass it parts of their inputs as tuples."""
    return bind(op, problem, "cpu")


def every_way(op: Op[P, Any], problem: P) -> Iterator[Any]:
    """The op bound at every level of this machine, and called with every number of threads.

    The first is the best level on one thread. To be used one after the other.
    """
    kernels = extension.kernels()
    for level in kernels.levels():
        kernels.set_level(level)
        bound = compiled(op, problem)
        for threads in THREADS if level == kernels.levels()[0] else (1,):
            kernels.set_num_threads(threads)
            yield bound


def rounded_activations(x: Tensor) -> Tensor:
    """x: [T, K] -> what a product with grouped weights makes of it, in float64."""
    groups = x.unflatten(-1, (-1, 32))
    largest = groups.abs().amax(-1, keepdim=True)
    codes = (groups * (127 / largest)).round()
    return (codes.double() * (largest / 127).double()).flatten(-2)


def chunks(num_tokens: int, size: int) -> Iterator[range]:
    for start in range(0, num_tokens, size):
        yield range(start, min(start + size, num_tokens))


def whole_pass(model: Tiny) -> list[Tensor]:
    """A long prompt beside short ones, then one token each: hidden rows and all pools."""
    storage = CacheStorage(model.cache_specs, 64, 8, block_size=model.block_size)
    for layer in storage.layers:
        for tensor in layer.values():
            tensor.zero_()
    lens = (130, 1, 17)
    blocks, used = [], 1
    for n in lens:
        count = -(-(n + 1) // model.block_size)
        blocks.append(list(range(used, used + count)))
        used += count
    rows = []
    for start in (True, False):
        seqs = []
        for i, n in enumerate(lens):
            num, first = (n, 0) if start else (1, n)
            stores = [SKIP] * (num - 1) + [1 + i]
            tokens = [(5 * t + i) % 32 for t in range(num)]
            load = NULL if start else 1 + i
            seqs.append(SequenceInput(tokens, first, blocks[i], load, stores))
        total = sum(len(s.token_ids) for s in seqs)
        batch = ForwardBatch.ragged(seqs, range(total), block_size=model.block_size)
        hidden = model.decoder(batch, storage.layers)
        rows += [hidden, model.decoder.logits(hidden)]
    return rows + [t for layer in storage.layers for t in layer.values()]
