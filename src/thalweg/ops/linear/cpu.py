from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.linear import Linear, LinearProblem


def reject(problem: LinearProblem) -> str | None:
    return extension.reason(problem.weight.dtype, problem.weight.device)


def bind(problem: LinearProblem) -> Linear:
    num_out, num_in = problem.weight.shape
    bias = None if problem.bias is None else problem.bias.to(torch.float32).contiguous()
    product = extension.kernels().Linear(
        extension.packed(problem.weight), 0 if bias is None else bias.data_ptr()
    )

    def linear(x: Tensor) -> Tensor:
        assert x.shape[1] == num_in
        x = extension.unit_stride(x)
        out = torch.empty((x.shape[0], num_out))
        product.run(x.data_ptr(), x.stride(0), x.shape[0], out.data_ptr(), num_out)
        return out

    return extension.made_of(linear, product)
