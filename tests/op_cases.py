"""Inputs for op tests: ragged batches, patterns of slots, pools that are NaN where unwritten."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
import torch
from torch import Tensor

from harness import bits, exact_kernels, same_bits
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import NULL, SKIP
from thalweg.ops.registry import Op, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

P = TypeVar("P", bound=Problem)
C = TypeVar("C")

LENGTHS = (1, 63, 65, 200)
RAGGED: tuple[tuple[int, ...], ...] = (
    (1,),
    (63,),
    (65,),
    (1, 1, 1),
    (5, 1, 0, 7),
    (1, 15, 16, 17, 33),
    (33, 2, 65, 1),
)
PATTERNS = ("new", "in place", "shared", "every token", "nowhere", "some")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2}
DTYPES = tuple(TOLERANCE)


def kinds(op: Op[P, C]) -> list[str]:
    """Every kernel an op has."""
    return [kernel.name for kernel in op.kernels]


def exact_kinds(op: Op[P, C]) -> list[str]:
    """Those whose bits depend on nothing but the values that define them."""
    return [kind for kind in kinds(op) if kind in exact_kernels()]


def bind(op: Op[P, C], problem: P, kind: str) -> C:
    """A kernel of this kind ready to be called; skips the test if it declines the problem.

    What it takes from `torch.empty` holds NaN at first.
    """
    chosen = next(k for k in op.kernels if k.name == kind)
    if (reason := chosen.reject(problem)) is not None:
        pytest.skip(f"{kind}: {reason}")
    kernel: Any = chosen.bind(problem)

    def call(*args: Any) -> Any:
        with poisoned_empty():
            return kernel(*args)

    return cast(C, call)


@contextmanager
def poisoned_empty() -> Iterator[None]:
    """Memory that torch hands out uninitialised holds NaN, so an unwritten output shows."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
            patch.setattr(owner, name, _poisoned(getattr(owner, name)))
        yield


def _poisoned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def empty(*args: Any, **kwargs: Any) -> Tensor:
        out = function(*args, **kwargs)
        return out.fill_(torch.nan) if out.is_floating_point() else out.fill_(-(2**30))

    return empty


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Within the dtype's tolerance of the largest value; NaN is never close."""
    assert actual.shape == expected.shape
    a, b = actual.double(), expected.double()
    assert bool(a.isfinite().all()), "not finite"
    if a.numel():
        error = float((a - b).abs().max())
        assert error <= TOLERANCE[dtype] * (1 + float(b.abs().max())), f"error {error}"


@dataclass(frozen=True, slots=True, eq=False)
class RaggedCase:
    """Sequences of different lengths, each with a slot of its own and spare ones to store in."""

    batch: ForwardBatch
    lens: tuple[int, ...]
    starts: tuple[int, ...]
    num_slots: int
    num_blocks: int
    block_size: int

    def pool(self, *shape: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
        """[num_slots, *shape]: zero in slot 0, values in loaded slots, NaN elsewhere."""
        pool = torch.full((self.num_slots, *shape), torch.nan, dtype=dtype)
        for slot in {*self.batch.state.load_slots.tolist()}:
            pool[slot] = randn(*shape, dtype=dtype, seed=seed + slot)
        pool[NULL] = 0
        return pool

    def ranges(self) -> list[range]:
        cu = self.batch.cu_seqlens.tolist()
        return [range(a, b) for a, b in pairwise(cu)]


def ragged_case(
    lens: Sequence[int], pattern: str = "in place", *, past: int = 0, block_size: int = 4
) -> RaggedCase:
    """`past` tokens of context, and one more for each sequence before, precede the new ones."""
    num_seqs = len(lens)
    starts = [past + i if past else 0 for i in range(num_seqs)]
    counts = [-(-(s + n) // block_size) for s, n in zip(starts, lens, strict=True)]
    num_blocks = 2 + sum(counts)
    ids = torch.randperm(num_blocks - 1, generator=generator(3)).add(1).tolist()
    inputs, spare = [], 1 + num_seqs
    for i, (n, start) in enumerate(zip(lens, starts, strict=True)):
        blocks = [ids.pop() for _ in range(counts[i])]
        own = 1 + i
        stores = [SKIP] * n
        for t in range(n):
            if pattern == "every token" or (pattern == "some" and (t + i) % 3 == 0):
                stores[t], spare = spare, spare + 1
        if n and pattern in ("new", "in place", "some"):
            stores[-1] = own
        if n and pattern == "shared":
            stores[-1], spare = spare, spare + 1
        load = {"new": NULL, "shared": 1}.get(pattern, own)
        inputs.append(SequenceInput([0] * n, start, blocks, load, stores))
    rows = range(sum(lens))
    return RaggedCase(
        ForwardBatch.ragged(inputs, rows, block_size=block_size),
        tuple(lens),
        tuple(starts),
        spare,
        num_blocks,
        block_size,
    )


def assert_only_stored(before: Tensor, after: Tensor, stored: Sequence[int]) -> None:
    """Rows of a pool that no token was stored in have the bits they had."""
    rest = [i for i in range(len(before)) if i not in {*stored}]
    assert torch.equal(bits(before[rest]), bits(after[rest]))


def assert_rows_alone(call: Callable[[list[int]], Tensor], num_rows: int) -> None:
    """A row's bits do not depend on what else is in the batch, nor on its place there."""
    whole = call(list(range(num_rows)))
    for rows in (
        [0],
        [num_rows - 1],
        [1, 0],
        [2, 0, 1],
        [6, 5, 4, 3, 2, 1, 0],
        list(range(num_rows - 1, -1, -1)),
    ):
        assert same_bits(call(rows), whole[rows]), rows


def strided(x: Tensor) -> Tensor:
    """The same values as a part of something wider, at an odd offset."""
    wide = torch.full((len(x), x.shape[1] + 4), torch.nan, dtype=x.dtype)
    wide[:, 3:-1] = x
    return wide[:, 3:-1]
