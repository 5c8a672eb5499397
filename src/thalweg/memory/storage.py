"""The tensors behind the ids. Parts of layers declare what they need; only this allocates it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ids import NULL
from thalweg.memory.spec import CacheSpec, DType, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.memory.manager import BlockCopy

LayerCache = dict[str, Tensor]
"""One layer's views of the pools, by name: `per_token` [num_blocks * block_size, ...] and
`per_sequence` [num_slots, ...], `per_draft` [num_slots, log_size, ...]."""

TORCH_DTYPES = {
    DType.FLOAT64: torch.float64,
    DType.FLOAT32: torch.float32,
    DType.BFLOAT16: torch.bfloat16,
}


class CacheStorage:
    """The pools of all layers. Slot 0 is the zero state; everything else starts undefined."""

    def __init__(
        self,
        specs: Sequence[CacheSpec],
        num_blocks: int,
        num_slots: int,
        *,
        block_size: int,
        log_size: int = 0,
        device: str = "cpu",
    ) -> None:
        def allocate(rows: int, t: TensorSpec) -> Tensor:
            return torch.empty((rows, *t.shape), dtype=TORCH_DTYPES[t.dtype], device=device)

        def allocate_log(t: TensorSpec) -> Tensor:
            return allocate(num_slots * log_size, t).unflatten(0, (num_slots, log_size))

        assert all(block_size % t.tokens_per_row == 0 for s in specs for t in s.per_token)
        self.block_size, self.num_blocks, self.log_size = block_size, num_blocks, log_size
        self.paged: list[LayerCache] = [
            {t.name: allocate(num_blocks * block_size // t.tokens_per_row, t) for t in s.per_token}
            for s in specs
        ]
        self.state: list[LayerCache] = [
            {t.name: allocate(num_slots, t) for t in s.per_sequence}
            | {t.name: allocate_log(t) for t in s.per_draft}
            for s in specs
        ]
        self.layers: list[LayerCache] = [p | s for p, s in zip(self.paged, self.state, strict=True)]
        for layer in self.state:
            for tensor in layer.values():
                tensor[NULL] = 0

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for layer in self.layers for t in layer.values())

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Carry out the block copies of a fork. A row that several tokens share is copied whole."""
        for c in copies:
            for layer in self.paged:
                for tensor in layer.values():
                    rows = tensor.unflatten(0, (self.num_blocks, -1))
                    begun = -(-c.num_rows * rows.shape[1] // self.block_size)
                    rows[c.dst, :begun] = rows[c.src, :begun]
