"""Rotary position embedding of the first channels of every head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.registry import Kernel, Op
from thalweg.ops.rotary import cpu, reference
from thalweg.ops.rotary import torch as vectorised

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from thalweg.config import RopeConfig


@dataclass(frozen=True, slots=True)
class RotaryProblem:
    rope: RopeConfig
    max_positions: int
    dtype: torch.dtype
    device: str

    def facts(self) -> str:
        rope = self.rope
        return f"{rope.rotary_dim} channels, theta {rope.theta:g}, {rope.scaling}, {self.dtype}"


class Rotary(Protocol):
    def __call__(self, x: Tensor, rope_positions: Tensor) -> Tensor:
        """x: [T, N, D], rope_positions: [R, T] int32 -> [T, N, D]; R = 1."""


OP: Op[RotaryProblem, Rotary] = Op(
    "rotary",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
