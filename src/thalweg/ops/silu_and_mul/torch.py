from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from thalweg.ops.silu_and_mul import SiluAndMul, SiluAndMulProblem


def bind(problem: SiluAndMulProblem) -> SiluAndMul:
    def silu_and_mul(gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    return silu_and_mul
