from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from thalweg.ids import SKIP
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.ops.causal_conv1d import CausalConv1d, CausalConv1dProblem


def bind(problem: CausalConv1dProblem) -> CausalConv1d:
    weight = problem.weight.to(ACCUMULATE[problem.weight.dtype]).T.contiguous()  # [W, D]
    num_past = len(weight) - 1

    def causal_conv1d(x: Tensor, conv: Tensor, batch: ForwardBatch) -> Tensor:
        # One stream: each sequence's window, then its tokens. `first[t]` is token t's oldest tap.
        lens = batch.cu_seqlens.diff()
        seq_of_row = torch.repeat_interleave(lens)
        first = torch.arange(len(x), device=x.device) + num_past * seq_of_row
        windows = torch.arange(num_past, device=x.device) + (
            batch.cu_seqlens[:-1, None]
            + num_past * torch.arange(len(lens), device=x.device)[:, None]
        )
        stream = conv.new_empty(len(x) + windows.numel(), x.shape[1])
        stream[windows.flatten()] = conv[batch.state.load_slots].flatten(0, 1)
        stream[first + num_past] = x.to(conv.dtype)
        total = stream[first] * weight[0]
        for j in range(1, num_past + 1):
            total = total + stream[first + j] * weight[j]
        kept = batch.state.store_slots != SKIP
        taps = first[kept, None] + torch.arange(1, num_past + 1, device=x.device)
        conv[batch.state.store_slots[kept]] = stream[taps]
        return F.silu(total)

    return causal_conv1d
