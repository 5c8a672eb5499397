from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.paged_attention import AttentionInputs, PagedAttention, PagedAttentionProblem

CACHE_DTYPES = (torch.float32, torch.bfloat16)
MOST_CHANNELS = 512
MOST_QUERIES = 16
"""Heads that share a key head."""


def reject(problem: PagedAttentionProblem) -> str | None:
    if problem.head_dim > MOST_CHANNELS:
        return f"heads of more than {MOST_CHANNELS} channels"
    if problem.num_heads > MOST_QUERIES * problem.num_kv_heads:
        return f"more than {MOST_QUERIES} heads share a key head"
    return extension.reason(problem.dtype)


def bind(problem: PagedAttentionProblem) -> PagedAttention:
    kernel = extension.kernels().Attention(
        problem.num_heads,
        problem.num_kv_heads,
        problem.head_dim,
        problem.block_size,
        problem.head_dim**-0.5,
    )

    def paged_attention(
        inputs: AttentionInputs, k_cache: Tensor, v_cache: Tensor, batch: ForwardBatch
    ) -> Tensor:
        assert k_cache.dtype == v_cache.dtype and k_cache.dtype in CACHE_DTYPES
        assert k_cache.is_contiguous() and v_cache.is_contiguous()
        q, k, v = (extension.unit_stride(x) for x in (inputs.q, inputs.k, inputs.v))
        gate = None if inputs.gate is None else extension.unit_stride(inputs.gate)
        caches = (k_cache.data_ptr(), v_cache.data_ptr(), k_cache.dtype == torch.bfloat16)
        kernel.write(
            k.data_ptr(),
            k.stride(0),
            k.stride(1),
            v.data_ptr(),
            v.stride(0),
            v.stride(1),
            batch.paged.slot_mapping.data_ptr(),
            k.shape[0],
            *caches,
        )
        out = torch.empty(q.shape)
        kernel.run(
            q.data_ptr(),
            q.stride(0),
            q.stride(1),
            0 if gate is None else gate.data_ptr(),
            0 if gate is None else gate.stride(0),
            0 if gate is None else gate.stride(1),
            *caches,
            batch.cu_seqlens.data_ptr(),
            batch.seq_lens.data_ptr(),
            batch.positions.data_ptr(),
            batch.shape.num_seqs,
            batch.paged.block_table.data_ptr(),
            batch.paged.block_table.shape[1],
            out.data_ptr(),
        )
        return out

    return extension.made_of(paged_attention, kernel)
