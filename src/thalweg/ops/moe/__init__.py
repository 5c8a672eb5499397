"""Mixture of experts: a router, top-k experts, and an optional shared expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.moe import cpu, reference
from thalweg.ops.moe import torch as vectorised
from thalweg.ops.registry import Kernel, Op

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.weight import Weight


@dataclass(frozen=True, slots=True, eq=False)
class SharedExpert:
    gate_up: Weight  # [2 I, D], gate rows first
    down: Weight  # [D, I]
    gate: Weight  # [1, D], its sigmoid scales the expert


@dataclass(frozen=True, slots=True, eq=False)
class MoEProblem:
    router: Weight  # [E, D]
    gate_up: Weight  # [E, 2 I, D], gate rows first
    down: Weight  # [E, D, I]
    top_k: int
    norm_topk_prob: bool
    shared: SharedExpert | None = None

    def facts(self) -> str:
        experts, hidden, intermediate = self.down.shape
        shared = "" if self.shared is None else f" + shared {self.shared.down.shape[1]}"
        return f"{self.top_k} of {experts}x[{hidden}, {intermediate}]{shared} {self.down.dtype}"


class MoE(Protocol):
    def __call__(self, x: Tensor, /) -> Tensor:
        """x: [T, D] -> [T, D]"""


OP: Op[MoEProblem, MoE] = Op(
    "moe",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
