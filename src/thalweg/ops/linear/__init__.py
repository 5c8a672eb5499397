"""Matrix product with a weight that never changes, plus bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.linear import cpu, onednn, reference
from thalweg.ops.linear import torch as vectorised
from thalweg.ops.registry import Kernel, Op
from thalweg.ops.weight import facts

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.weight import Weight


@dataclass(frozen=True, slots=True, eq=False)
class LinearProblem:
    weight: Weight  # [N, K]
    bias: Tensor | None = None  # [N]

    def facts(self) -> str:
        bias = "" if self.bias is None else " + bias"
        return f"{facts(self.weight)}{bias}"


class Linear(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x: [T, K] -> [T, N]"""


OP: Op[LinearProblem, Linear] = Op(
    "linear",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("onednn", onednn.bind, onednn.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
