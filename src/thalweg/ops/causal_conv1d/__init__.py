"""Depthwise causal convolution with SiLU, whose window is per-sequence memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.causal_conv1d import cpu, reference
from thalweg.ops.causal_conv1d import torch as vectorised
from thalweg.ops.registry import Kernel, Op

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.batch import ForwardBatch


@dataclass(frozen=True, slots=True, eq=False)
class CausalConv1dProblem:
    weight: Tensor  # [D, W]

    def facts(self) -> str:
        return f"{list(self.weight.shape)} {self.weight.dtype}"


class CausalConv1d(Protocol):
    def __call__(self, x: Tensor, conv: Tensor, batch: ForwardBatch) -> Tensor:
        """x: [T, D], conv: [num_slots, W - 1, D] float32 -> [T, D] float32

        A slot holds the last W - 1 inputs, oldest first. Reads `load_slots`, writes `store_slots`.
        """


OP: Op[CausalConv1dProblem, CausalConv1d] = Op(
    "causal_conv1d",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
