from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.mlp import MLP, MLPProblem


def reject(problem: MLPProblem) -> str | None:
    return extension.reason(problem.gate_up.dtype, problem.gate_up.device)


def bind(problem: MLPProblem) -> MLP:
    # Not the problem itself: it would keep the stored weights, and the mapped file, in memory.
    num_in, width = problem.gate_up.shape[1], problem.down.shape[0]
    kernel = extension.kernels().MLP(
        extension.packed(problem.gate_up), extension.packed(problem.down)
    )

    def mlp(x: Tensor) -> Tensor:
        assert x.shape[1] == num_in
        x = extension.unit_stride(x)
        out = torch.empty((x.shape[0], width))
        kernel.run(x.data_ptr(), x.stride(0), x.shape[0], out.data_ptr())
        return out

    return mlp
