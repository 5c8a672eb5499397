"""Causal attention over the paged KV cache, with grouped heads and an optional output gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.paged_attention import cpu, reference
from thalweg.ops.paged_attention import torch as vectorised
from thalweg.ops.registry import Kernel, Op

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from thalweg.batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class PagedAttentionProblem:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    def facts(self) -> str:
        heads = f"{self.num_heads} heads, {self.num_kv_heads} kv, {self.head_dim}"
        return f"{heads}, blocks of {self.block_size}, {self.dtype}"


@dataclass(frozen=True, slots=True, eq=False)
class AttentionInputs:
    q: Tensor  # [T, H, D]
    k: Tensor  # [T, HKV, D]
    v: Tensor  # [T, HKV, D]
    gate: Tensor | None  # [T, H, D], before the sigmoid


class PagedAttention(Protocol):
    def __call__(
        self, inputs: AttentionInputs, k_cache: Tensor, v_cache: Tensor, batch: ForwardBatch
    ) -> Tensor:
        """k_cache, v_cache: [num_blocks * block_size, HKV, D] -> [T, H, D]

        Writes k and v through `slot_mapping` first, then reads both through `block_table` only.
        """


OP: Op[PagedAttentionProblem, PagedAttention] = Op(
    "paged_attention",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
