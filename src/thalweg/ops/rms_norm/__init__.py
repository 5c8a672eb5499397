"""RMS norm in three settings: alone, after a residual addition, and with a SiLU gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.registry import Kernel, Op
from thalweg.ops.rms_norm import cpu, reference
from thalweg.ops.rms_norm import torch as vectorised

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RMSNormProblem:
    weight: Tensor  # [D]
    eps: float
    zero_centered: bool = False

    def facts(self) -> str:
        kind = "1 + w" if self.zero_centered else "w"
        return f"{self.weight.shape[0]}, {kind}, {self.weight.dtype}"


class RMSNorm(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., D] -> [..., D]"""


class AddRMSNorm(Protocol):
    def __call__(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """hidden, residual: [T, D] -> norm(hidden + residual), hidden + residual"""


class GatedRMSNorm(Protocol):
    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """x, z: [..., D] -> norm(x) * silu(z): [..., D], in z's dtype"""


OP: Op[RMSNormProblem, RMSNorm] = Op(
    "rms_norm",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
ADD_OP: Op[RMSNormProblem, AddRMSNorm] = Op(
    "add_rms_norm",
    (
        Kernel("cpu", cpu.bind_add, cpu.reject),
        Kernel("torch", vectorised.bind_add),
        Kernel("reference", reference.bind_add),
    ),
)
GATED_OP: Op[RMSNormProblem, GatedRMSNorm] = Op(
    "gated_rms_norm",
    (
        Kernel("cpu", cpu.bind_gated, cpu.reject),
        Kernel("torch", vectorised.bind_gated),
        Kernel("reference", reference.bind_gated),
    ),
)
