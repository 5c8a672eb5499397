"""The multi-token-prediction (MTP) head: one more layer that guesses the token after the next.

Its row at position p joins the embedding of token p with the target's hidden state of p - 1, so it
depends on tokens up to p alone: its KV rows lie in the same blocks as the target's and are shared
with them. Position 0 has no row. This is what transformers' `MtpModel` computes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from thalweg.batch import PagedIndex
from thalweg.ids import SKIP
from thalweg.layers.attention import Attention
from thalweg.layers.gated_delta_net import with_pending
from thalweg.layers.layer import TransformerLayer
from thalweg.layers.linear import Linear
from thalweg.layers.norm import AddRMSNorm, RMSNorm

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import LayerConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.embedding import Embedding
    from thalweg.layers.weights import Weights
    from thalweg.memory.storage import LayerCache


class MTPHead(nn.Module):
    def __init__(
        self,
        config: LayerConfig,
        weights: Weights,
        build: BuildContext,
        *,
        embed_tokens: Embedding,
    ) -> None:
        """The embedding is the model's, as is what makes logits of the result."""
        super().__init__()
        self.embed_tokens = embed_tokens
        self.pre_fc_norm_embedding = RMSNorm(weights.scope("pre_fc_norm_embedding"), build)
        self.pre_fc_norm_hidden = RMSNorm(weights.scope("pre_fc_norm_hidden"), build)
        self.fc = Linear(["fc"], weights, build)
        # A context that begins at position 1 fits no block table: it is a table of single rows.
        by_row = replace(build, block_size=1)
        self.layer = TransformerLayer(config, weights.scope("layers.0"), by_row)
        self.norm = AddRMSNorm(weights.scope("norm"), build)
        self.block_size = build.block_size

    def forward(self, batch: ForwardBatch, previous: Tensor, cache: LayerCache) -> Tensor:
        """Hidden states that say what comes after the batch's tokens, all of positions >= 1.

        previous: [T, hidden_size], the hidden states before these tokens, the target's or this
        head's own -> [T, hidden_size]
        """
        joined = self._join(previous, batch)
        rows = self._from_position_1(batch)
        hidden, residual = self.layer(joined, torch.zeros_like(joined), rows, cache)
        hidden, _ = self.norm(hidden, residual)
        return hidden

    def catch_up(self, hidden: Tensor, batch: ForwardBatch, cache: LayerCache) -> None:
        """Write the KV rows of a pass, and the hidden state that each stored one continues from.

        hidden: [T, hidden_size], what the target made of the batch.
        """
        last_hidden, index = cache["last_hidden"], batch.recurrent  # [num_slots, hidden_size]
        rows = with_pending(hidden, cache["hidden_log"], batch)
        before = rows.roll(1, 0)
        begin, end = index.cu_seqlens[:-1], index.cu_seqlens[1:]
        before[begin[begin < end]] = last_hidden[index.state.load_slots[begin < end]]
        stores = index.state.store_slots
        kept = stores != SKIP
        last_hidden[stores[kept]] = rows[kept]
        if not batch.shape.num_tokens:
            return
        previous = before[index.state.replay.new_at] if batch.shape.num_pending else before
        slots = batch.paged.slot_mapping.masked_fill(batch.positions == 0, SKIP)
        joined = self._join(previous, batch)
        joined, _ = self.layer.input_layernorm(joined, torch.zeros_like(joined))
        attention = self.layer.mixer
        assert isinstance(attention, Attention)
        written = replace(batch, paged=replace(batch.paged, slot_mapping=slots))
        attention.write(joined, written, cache)

    def _join(self, previous: Tensor, batch: ForwardBatch) -> Tensor:
        """-> [T, hidden_size]"""
        embeds = self.pre_fc_norm_embedding(self.embed_tokens(batch.token_ids))
        return self.fc(torch.cat([embeds, self.pre_fc_norm_hidden(previous)], -1), batch)

    def _from_position_1(self, batch: ForwardBatch) -> ForwardBatch:
        """The batch as attention is to see it: contexts without their first row."""
        offsets = torch.arange(self.block_size, dtype=torch.int32)
        rows = batch.paged.block_table[:, :, None] * self.block_size + offsets
        return replace(
            batch,
            positions=batch.positions - 1,
            seq_lens=(batch.seq_lens - 1).clamp_min(0),
            paged=PagedIndex(rows.flatten(1)[:, 1:].contiguous(), batch.paged.slot_mapping),
        )
