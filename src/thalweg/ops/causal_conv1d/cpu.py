from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.causal_conv1d import CausalConv1d, CausalConv1dProblem

MOST_TAPS = 16


def reject(problem: CausalConv1dProblem) -> str | None:
    if problem.weight.shape[1] > MOST_TAPS:
        return f"a window of more than {MOST_TAPS}"
    return extension.reason(problem.weight.dtype, problem.weight.device)


def bind(problem: CausalConv1dProblem) -> CausalConv1d:
    weight = problem.weight.to(torch.float32).T.contiguous()  # [W, D]
    taps, channels = weight.shape
    kernel = extension.kernels().Conv(weight.data_ptr(), taps, channels)

    def causal_conv1d(x: Tensor, conv: Tensor, batch: ForwardBatch) -> Tensor:
        assert x.shape[1] == channels and conv.dtype == torch.float32 and conv.is_contiguous()
        x = extension.unit_stride(x)
        out = torch.empty((x.shape[0], channels))
        kernel.run(
            x.data_ptr(),
            x.stride(0),
            x.shape[0],
            batch.cu_seqlens.data_ptr(),
            batch.state.load_slots.data_ptr(),
            batch.state.store_slots.data_ptr(),
            batch.shape.num_seqs,
            conv.data_ptr(),
            out.data_ptr(),
        )
        return out

    return extension.made_of(causal_conv1d, kernel)
