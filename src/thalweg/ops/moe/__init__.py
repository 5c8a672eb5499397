"""Mixture of experts: a router, top-k experts, and an optional shared expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.moe import cpu, reference
from thalweg.ops.moe import torch as vectorised
from thalweg.ops.registry import Kernel, Op

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SharedExpert:
    gate_up: Tensor  # [2 I, D], gate rows first
    down: Tensor  # [D, I]
    gate: Tensor  # [1, D], its sigmoid scales the expert


@dataclass(frozen=True, slots=True, eq=False)
class MoEProblem:
    router: Tensor  # [E, D]
    gate_up: Tensor  # [E, 2 I, D], gate rows first
    down: Tensor  # [E, D, I]
    top_k: int
    norm_topk_prob: bool
    shared: SharedExpert | None = None

    def facts(self) -> str:
        experts, hidden, intermediate = self.down.shape
        shared = "" if self.shared is None else f" + shared {self.shared.down.shape[1]}"
        return f"{self.top_k} of {experts}x[{hidden}, {intermediate}]{shared} {self.down.dtype}"


class MoE(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x: [T, D] -> [T, D]"""


OP: Op[MoEProblem, MoE] = Op(
    "moe",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
