"""The activation of a gated MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.registry import Kernel, Op
from thalweg.ops.silu_and_mul import cpu, reference
from thalweg.ops.silu_and_mul import torch as vectorised

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SiluAndMulProblem:
    intermediate_size: int
    dtype: torch.dtype

    def facts(self) -> str:
        return f"{self.intermediate_size}, {self.dtype}"


class SiluAndMul(Protocol):
    def __call__(self, gate_up: Tensor, /) -> Tensor:
        """gate_up: [T, 2 I], gate first -> silu(gate) * up: [T, I]"""


OP: Op[SiluAndMulProblem, SiluAndMul] = Op(
    "silu_and_mul",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
