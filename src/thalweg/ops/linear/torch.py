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
        return F.linear(x, weight, bias)

    return linear
