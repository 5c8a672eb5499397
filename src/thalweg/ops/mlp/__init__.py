"""The gated MLP of a layer: two products with an activation between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import thalweg.ops.linear.torch as linear_torch
import thalweg.ops.silu_and_mul.torch as silu_torch
from thalweg.ops import linear
from thalweg.ops.linear import onednn
from thalweg.ops.linear import reference as linear_reference
from thalweg.ops.mlp import cpu
from thalweg.ops.mlp.composed import composed
from thalweg.ops.registry import Kernel, Op
from thalweg.ops.silu_and_mul import reference as silu_reference
from thalweg.ops.weight import facts

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.weight import Weight


@dataclass(frozen=True, slots=True, eq=False)
class MLPProblem:
    gate_up: Weight  # [2 I, D], gate first
    down: Weight  # [D, I]

    def facts(self) -> str:
        return f"{facts(self.gate_up)}, {facts(self.down)}"


class MLP(Protocol):
    def __call__(self, x: Tensor, /) -> Tensor:
        """x: [T, D] -> down(silu(gate(x)) * up(x)): [T, D]"""


def _reject_onednn(problem: MLPProblem) -> str | None:
    return onednn.reject(linear.LinearProblem(problem.gate_up))


OP: Op[MLPProblem, MLP] = Op(
    "mlp",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("onednn", composed(onednn.bind, silu_torch.bind), _reject_onednn),
        Kernel("torch", composed(linear_torch.bind, silu_torch.bind)),
        Kernel("reference", composed(linear_reference.bind, silu_reference.bind)),
    ),
)
