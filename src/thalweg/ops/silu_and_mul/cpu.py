from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.silu_and_mul import SiluAndMul, SiluAndMulProblem


def reject(problem: SiluAndMulProblem) -> str | None:
    return extension.reason(problem.dtype)


def bind(problem: SiluAndMulProblem) -> SiluAndMul:
    width = problem.intermediate_size
    kernel = extension.kernels().SiluAndMul(width)

    def silu_and_mul(gate_up: Tensor) -> Tensor:
        assert gate_up.shape[1] == 2 * width
        gate_up = extension.unit_stride(gate_up)
        out = torch.empty((gate_up.shape[0], width))
        kernel.run(gate_up.data_ptr(), gate_up.stride(0), gate_up.shape[0], out.data_ptr())
        return out

    return silu_and_mul
