"""Look up one row of a table for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.embedding import cpu, reference
from thalweg.ops.embedding import torch as vectorised
from thalweg.ops.registry import Kernel, Op
from thalweg.ops.weight import facts

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.weight import Weight


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingProblem:
    weight: Weight  # [vocab_size, D]

    def facts(self) -> str:
        return facts(self.weight)


class Embedding(Protocol):
    def __call__(self, token_ids: Tensor) -> Tensor:
        """token_ids: [T] int32 -> [T, D]"""


OP: Op[EmbeddingProblem, Embedding] = Op(
    "embedding",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
