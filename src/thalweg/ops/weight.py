"""Weights as a checkpoint stores them: what products and tables are bound to.

Kernels that pack take the stored form; the others ask for `dense` values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops.dequantize import BLOCK_TYPES, dequantize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.ops.dequantize import BlockType

GROUP = 32
"""Neighbours in a row that may be moved together without unpacking them."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A tensor in GGUF's quantised blocks, which follow each other along its last axis.

    Like a tensor it has a shape, rows to choose and a dtype: that of its values.
    """

    data: Tensor  # [..., bytes of a row] uint8
    type_name: str
    """Of `BLOCK_TYPES`."""
    groups: Tensor | None = None  # [K / GROUP] int32: stored place of each group; None: in order

    @property
    def kind(self) -> BlockType:
        return BLOCK_TYPES[self.type_name]

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def device(self) -> torch.device:
        return self.data.device

    @property
    def shape(self) -> tuple[int, ...]:
        *rows, nbytes = self.data.shape
        return (*rows, nbytes // self.kind.nbytes * self.kind.num_values)

    def numel(self) -> int:
        return prod(self.shape)

    def reshape(self, shape: Sequence[int]) -> Stored:
        """Of other rows; values only where rows get another length."""
        if not shape or shape[-1] != self.shape[-1]:
            return self.dense().reshape(*shape)
        return self._with(self.data.reshape(*shape[:-1], self.data.shape[-1]))

    def index_select(self, dim: int, index: Tensor) -> Stored:
        """Columns (dim 1 of a matrix) as values unless whole groups are moved."""
        if dim < self.data.dim() - 1:
            return self._with(self.data.index_select(dim, index))
        runs = index.view(-1, GROUP) if len(index) % GROUP == 0 else index.view(-1, 1)
        whole = runs.shape[1] == GROUP and bool(
            (runs == runs[:, :1] // GROUP * GROUP + torch.arange(GROUP)).all()
        )
        if not whole or self.groups is not None:
            return self.dense().index_select(dim, index)
        groups = (runs[:, 0] // GROUP).to(torch.int32)
        return Blocks(self.data, self.type_name, groups)

    def unbind(self) -> list[Blocks]:
        return [self._with(data) for data in self.data.unbind()]

    def dense(self) -> Tensor:
        """The values, float32: bit for bit those of the `gguf` package."""
        values = torch.empty(self.shape)
        blocks = self.data.cpu().contiguous().flatten().numpy()
        num_threads = torch.get_num_threads()
        dequantize(blocks, self.kind, out=values.flatten().numpy(), num_threads=num_threads)
        if self.groups is None:
            return values
        grouped = values.unflatten(-1, (-1, GROUP))
        return grouped.index_select(-2, self.groups).flatten(-2)

    def _with(self, data: Tensor) -> Blocks:
        return Blocks(data, self.type_name, self.groups)


Stored = Tensor | Blocks
"""A tensor in the form it is stored in."""


def values_of(stored: Stored) -> Tensor:
    """Quantised ones as float32."""
    return stored.dense() if isinstance(stored, Blocks) else stored


def concatenated(parts: Sequence[Stored]) -> Stored:
    """Along the rows; as blocks if all are blocks of one type."""
    if len(parts) == 1:
        return parts[0]
    blocks = [part for part in parts if isinstance(part, Blocks)]
    if len(blocks) == len(parts) and len({part.type_name for part in blocks}) == 1:
        return Blocks(torch.cat([part.data for part in blocks]), blocks[0].type_name)
    return torch.cat([values_of(part) for part in parts])


@dataclass(frozen=True, eq=False)
class Matrix:
    """Stored parts, one below the other, for a model that computes in `dtype`."""

    parts: tuple[Stored, ...]  # [N_i, K] each, or one [E, N, K]
    dtype: torch.dtype
    device: torch.device

    @property
    def shape(self) -> tuple[int, ...]:
        rows = sum(part.shape[0] for part in self.parts)
        return (rows, *self.parts[0].shape[1:])

    def unbind(self) -> list[Matrix]:
        """The matrices of one part that is a stack of them."""
        (stack,) = self.parts
        return [Matrix((each,), self.dtype, self.device) for each in stack.unbind()]

    @cached_property
    def dense(self) -> Tensor:
        """The values in `dtype`. A single part that needs no change is not copied: it may lie in
        the checkpoint's mapped file."""
        whole = [values_of(part).to(self.device, self.dtype) for part in self.parts]
        return whole[0] if len(whole) == 1 else torch.cat(whole)

    def facts(self) -> str:
        """Shape and stored types, for the execution plan."""
        names = [p.type_name if isinstance(p, Blocks) else _name(p.dtype) for p in self.parts]
        return f"{list(self.shape)} {' + '.join(dict.fromkeys(names))}"


Weight = Tensor | Matrix
"""What a problem is given; a tensor has the model's dtype."""


def dense(weight: Weight) -> Tensor:
    return weight.dense if isinstance(weight, Matrix) else weight


def facts(weight: Weight) -> str:
    if isinstance(weight, Matrix):
        return weight.facts()
    return f"{list(weight.shape)} {_name(weight.dtype)}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
