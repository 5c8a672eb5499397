"""Full attention: grouped heads, rotary positions, and what models add: q/k norm, output gate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from thalweg.layers.linear import Linear
from thalweg.layers.norm import RMSNorm
from thalweg.ops import paged_attention, rotary
from thalweg.ops.paged_attention import AttentionInputs
from thalweg.ops.transformer_layers import AttentionParts

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import AttentionConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights
    from thalweg.memory.storage import LayerCache


class Attention(nn.Module):
    def __init__(self, config: AttentionConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.config = config
        self.qkv_proj = Linear(["q_proj", "k_proj", "v_proj"], weights, build, bias=config.qkv_bias)
        self.o_proj = Linear(["o_proj"], weights, build)
        norms = config.qk_norm
        self.q_norm = RMSNorm(weights.scope("q_norm"), build) if norms else None
        self.k_norm = RMSNorm(weights.scope("k_norm"), build) if norms else None
        self.rotary = build.kernels.bind(
            rotary.OP,
            rotary.RotaryProblem(config.rope, build.max_model_len, build.dtype, build.device),
        )
        self.attention = build.kernels.bind(
            paged_attention.OP,
            paged_attention.PagedAttentionProblem(
                config.num_heads,
                config.num_kv_heads,
                config.head_dim,
                build.block_size,
                build.dtype,
            ),
        )
        self.cache_spec = build.cache_spec(config)

    @property
    def parts(self) -> AttentionParts:
        return AttentionParts(
            self.qkv_proj.product,
            None if self.q_norm is None else self.q_norm.norm,
            None if self.k_norm is None else self.k_norm.norm,
            self.rotary,
            self.attention,
            self.o_proj.product,
            self.config.output_gate,
        )

    def forward(self, hidden: Tensor, batch: ForwardBatch, cache: LayerCache) -> Tensor:
        """hidden: [T, hidden_size] -> [T, hidden_size]"""
        inputs = self._project(hidden, batch)
        o = self.attention(inputs, cache["k"], cache["v"], batch)
        return self.o_proj(o.flatten(1), batch)

    def write(self, hidden: Tensor, batch: ForwardBatch, cache: LayerCache) -> None:
        """Only the k and v rows of hidden: [T, hidden_size]."""
        unread = replace(batch, seq_lens=torch.zeros_like(batch.seq_lens))  # as padding: no context
        self.attention(self._project(hidden, batch), cache["k"], cache["v"], unread)

    def _project(self, hidden: Tensor, batch: ForwardBatch) -> AttentionInputs:
        c = self.config
        q_width = c.num_heads * c.head_dim * (2 if c.output_gate else 1)
        kv_width = c.num_kv_heads * c.head_dim
        qkv = self.qkv_proj(hidden, batch)
        q, k, v = qkv.split_with_sizes([q_width, kv_width, kv_width], -1)
        k, v = (x.view(-1, c.num_kv_heads, c.head_dim) for x in (k, v))
        gate = None
        if c.output_gate:  # per head: q, then gate
            q, gate = q.view(-1, c.num_heads, 2, c.head_dim).unbind(2)
        else:
            q = q.view(-1, c.num_heads, c.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q = self.rotary(q, batch.rope_positions)
        k = self.rotary(k, batch.rope_positions)
        return AttentionInputs(q, k, v, gate)
