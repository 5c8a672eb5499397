from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from thalweg.ids import SKIP

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.ops.paged_attention import AttentionInputs, PagedAttention, PagedAttentionProblem


def bind(problem: PagedAttentionProblem) -> PagedAttention:
    group = problem.num_heads // problem.num_kv_heads
    heads = (problem.num_kv_heads, problem.head_dim)
    block_size = problem.block_size

    def context(cache: Tensor, blocks: Tensor, num_tokens: int) -> Tensor:
        """One sequence's rows, whole blocks at a time. -> [HKV, num_tokens, D]"""
        rows = cache.view(-1, block_size * heads[0] * heads[1]).index_select(0, blocks)
        return rows.view(-1, *heads)[:num_tokens].transpose(0, 1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The last n of N positions ask. q: [n, H, D], k, v: [HKV, N, D] -> [n, H, D]"""
        num_new, num_tokens = len(q), k.shape[1]
        if num_new == num_tokens:
            o = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], k[None], v[None], is_causal=True, enable_gqa=True
            )
            return o[0].transpose(0, 1)
        # A key head's queries are rows of one problem: group * n of them.
        rows = q.view(num_new, heads[0], group, heads[1]).permute(1, 2, 0, 3)
        mask = None
        if num_new > 1:
            position = torch.arange(num_tokens, device=q.device)
            mask = (position <= position[-num_new:, None]).repeat(group, 1)
        o = F.scaled_dot_product_attention(
            rows.reshape(1, heads[0], group * num_new, heads[1]), k[None], v[None], attn_mask=mask
        )
        o = o.view(heads[0], group, num_new, heads[1]).permute(2, 0, 1, 3)
        return o.reshape(num_new, -1, heads[1])

    def paged_attention(
        inputs: AttentionInputs, k_cache: Tensor, v_cache: Tensor, batch: ForwardBatch
    ) -> Tensor:
        slots = batch.paged.slot_mapping
        kept = slots != SKIP
        for cache, new in ((k_cache, inputs.k), (v_cache, inputs.v)):
            cache[slots[kept]] = new[kept].to(cache.dtype)
        out = torch.zeros_like(inputs.q)
        seq_lens = batch.seq_lens.tolist()
        for i, (bos, eos) in enumerate(pairwise(batch.cu_seqlens.tolist())):
            num_tokens, num_new = seq_lens[i], eos - bos
            if num_tokens == 0 or num_new == 0:
                continue  # padding
            blocks = batch.paged.block_table[i, : -(-num_tokens // block_size)]
            out[bos:eos] = attend(
                inputs.q[bos:eos],
                context(k_cache, blocks, num_tokens).to(out.dtype),
                context(v_cache, blocks, num_tokens).to(out.dtype),
            )
        return out if inputs.gate is None else out * inputs.gate.sigmoid()

    return paged_attention
