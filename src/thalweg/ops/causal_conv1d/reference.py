from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ids import SKIP
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.ops.causal_conv1d import CausalConv1d, CausalConv1dProblem


def bind(problem: CausalConv1dProblem) -> CausalConv1d:
    weight = problem.weight.to(ACCUMULATE[problem.weight.dtype]).T.contiguous()  # [W, D]

    def causal_conv1d(x: Tensor, conv: Tensor, batch: ForwardBatch) -> Tensor:
        out = torch.empty_like(x, dtype=weight.dtype)
        load_slots, store_slots = batch.state.load_slots.tolist(), batch.state.store_slots.tolist()
        for slot, (bos, eos) in zip(load_slots, pairwise(batch.cu_seqlens.tolist()), strict=True):
            window = conv[slot].clone()  # [W - 1, D]
            for t in range(bos, eos):
                taps = torch.cat([window, x[t, None].to(conv.dtype)])  # [W, D]
                total = taps[0] * weight[0]
                for j in range(1, len(taps)):
                    total = total + taps[j] * weight[j]
                out[t] = total * total.sigmoid()
                window = taps[1:]
                if (store := store_slots[t]) != SKIP:
                    conv[store] = window
        return out

    return causal_conv1d
