from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ids import SKIP
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.ops.paged_attention import AttentionInputs, PagedAttention, PagedAttentionProblem


def bind(problem: PagedAttentionProblem) -> PagedAttention:
    group = problem.num_heads // problem.num_kv_heads
    scale = problem.head_dim**-0.5
    wide = ACCUMULATE[problem.dtype]

    def paged_attention(
        inputs: AttentionInputs, k_cache: Tensor, v_cache: Tensor, batch: ForwardBatch
    ) -> Tensor:
        for t, row in enumerate(batch.paged.slot_mapping.tolist()):
            if row != SKIP:
                k_cache[row], v_cache[row] = inputs.k[t], inputs.v[t]
        out = torch.zeros_like(inputs.q)
        positions, seq_lens = batch.positions.tolist(), batch.seq_lens.tolist()
        for i, (bos, eos) in enumerate(pairwise(batch.cu_seqlens.tolist())):
            if seq_lens[i] == 0:
                continue  # padding
            for t in range(bos, eos):
                rows = context_rows(
                    batch.paged.block_table[i], positions[t] + 1, problem.block_size
                )
                for h in range(problem.num_heads):
                    keys = k_cache[rows, h // group].to(wide)  # [n, D]
                    values = v_cache[rows, h // group].to(wide)
                    scores = keys @ inputs.q[t, h].to(wide, copy=True) * scale
                    weights = (scores - scores.max()).exp()
                    o = weights @ values / weights.sum()
                    if inputs.gate is not None:
                        o = o * inputs.gate[t, h].to(wide, copy=True).sigmoid()
                    out[t, h] = o
        return out

    return paged_attention


def context_rows(blocks: Tensor, num_tokens: int, block_size: int) -> Tensor:
    """Cache rows of positions 0 .. num_tokens - 1. blocks: [B] int32 -> [num_tokens]"""
    position = torch.arange(num_tokens, device=blocks.device)
    return blocks[position // block_size] * block_size + position % block_size
