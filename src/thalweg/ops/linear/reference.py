from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops.precision import ACCUMULATE
from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.linear import Linear, LinearProblem


def bind(problem: LinearProblem) -> Linear:
    weight, bias = dense(problem.weight), problem.bias
    wide = weight.to(ACCUMULATE[weight.dtype])

    def linear(x: Tensor) -> Tensor:
        out = x.new_empty(len(x), len(weight))
        for t in range(len(x)):
            row = wide @ x[t].to(wide.dtype, copy=True)
            out[t] = row if bias is None else row + bias
        return out

    return linear
