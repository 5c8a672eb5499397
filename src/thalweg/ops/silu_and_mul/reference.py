from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.silu_and_mul import SiluAndMul, SiluAndMulProblem


def bind(problem: SiluAndMulProblem) -> SiluAndMul:
    wide = ACCUMULATE[problem.dtype]

    def silu_and_mul(gate_up: Tensor) -> Tensor:
        out = gate_up.new_empty(len(gate_up), problem.intermediate_size)
        for t in range(len(gate_up)):
            gate, up = gate_up[t].to(wide, copy=True).view(2, -1)
            out[t] = gate * gate.sigmoid() * up
        return out

    return silu_and_mul
