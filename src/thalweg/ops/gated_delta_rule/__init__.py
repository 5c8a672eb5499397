"""The gated delta rule: a matrix of memory per head, decayed, corrected and read at every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.gated_delta_rule import cpu, reference
from thalweg.ops.gated_delta_rule import torch as vectorised
from thalweg.ops.registry import Kernel, Op

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from thalweg.batch import ForwardBatch


@dataclass(frozen=True, slots=True, eq=False)
class DeltaGatesProblem:
    A_log: Tensor  # [HV]
    dt_bias: Tensor  # [HV]

    def facts(self) -> str:
        return f"{self.A_log.shape[0]} heads"


class DeltaGates(Protocol):
    def __call__(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """a, b: [T, HV] -> g (log decay), beta (write strength): [T, HV] float32"""


@dataclass(frozen=True, slots=True)
class GatedDeltaRuleProblem:
    num_k_heads: int
    num_v_heads: int
    head_k_dim: int
    head_v_dim: int
    state_dtype: torch.dtype

    def facts(self) -> str:
        heads = f"{self.num_k_heads}x{self.head_k_dim} keys, {self.num_v_heads}x{self.head_v_dim}"
        return f"{heads} values, state {self.state_dtype}"


class GatedDeltaRule(Protocol):
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        ssm: Tensor,
        batch: ForwardBatch,
    ) -> Tensor:
        """q, k: [T, H, K], v: [T, HV, V], g, beta: [T, HV], ssm: [num_slots, HV, K, V]
        -> [T, HV, V], all in the state's dtype

        q and k are normalised here. Reads `load_slots`, writes `store_slots`.
        """


GATES_OP: Op[DeltaGatesProblem, DeltaGates] = Op(
    "delta_gates",
    (
        Kernel("cpu", cpu.bind_gates, cpu.reject_gates),
        Kernel("torch", vectorised.bind_gates),
        Kernel("reference", reference.bind_gates),
    ),
)
OP: Op[GatedDeltaRuleProblem, GatedDeltaRule] = Op(
    "gated_delta_rule",
    (
        Kernel("cpu", cpu.bind, cpu.reject),
        Kernel("torch", vectorised.bind),
        Kernel("reference", reference.bind),
    ),
)
