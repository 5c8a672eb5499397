from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from thalweg.ops.linear import Linear, LinearProblem


def bind(problem: LinearProblem) -> Linear:
    weight, bias = dense(problem.weight), problem.bias

    def linear(x: Tensor) -> Tensor:
        return product(x, weight, bias)

    return linear


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x: [T, K], weight: [N, K], bias: [N] -> [T, N]"""
    # oneDNN's AMX product of bfloat16 rows with a gap between them reads into the gap where their
    # length is odd: a NaN there becomes a NaN here (torch 2.13).
    return F.linear(x.contiguous(), weight, bias)
