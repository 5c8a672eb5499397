"""The decoder every supported architecture is: embedding, layers, final norm, head.

Architectures differ in the facts of `ModelConfig`; what is here holds for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from thalweg.layers.embedding import Embedding, LMHead
from thalweg.layers.layer import TransformerLayer
from thalweg.layers.linear import matrix
from thalweg.layers.norm import AddRMSNorm
from thalweg.ops import transformer_layers

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import ModelConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights
    from thalweg.memory.storage import LayerCache


class Decoder(nn.Module):
    def __init__(self, config: ModelConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        table = matrix([weights.stored("embed_tokens.weight")], build)
        self.config = config
        self.embed_tokens = Embedding(table, build)
        # The largest matrices first, while there is little beside the pages they are read from.
        if not config.tie_word_embeddings:
            table = matrix([weights.stored("lm_head.weight")], build)
        self.lm_head = LMHead(table, build)
        del table
        layers = [
            TransformerLayer(layer, weights.scope(f"layers.{i}"), build)
            for i, layer in enumerate(config.layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.cache_specs = [layer.cache_spec for layer in layers]
        self.at_once = build.kernels.fuse(
            transformer_layers.OP,
            transformer_layers.TransformerLayersProblem(tuple(layer.parts for layer in layers)),
        )
        """All layers as one call, with the same bits; None: one after the other."""
        self.norm = AddRMSNorm(weights.scope("norm"), build)

    def forward(self, batch: ForwardBatch, caches: list[LayerCache]) -> Tensor:
        """caches: each layer's, as `cache_specs` says -> every row's final normed hidden state,
        [T, hidden_size]"""
        hidden = self.embed_tokens(batch.token_ids)
        residual = torch.zeros_like(hidden)
        if self.at_once is not None:
            hidden, residual = self.at_once(hidden, residual, batch, caches)
        else:
            for layer, cache in zip(self.layers, caches, strict=True):
                hidden, residual = layer(hidden, residual, batch, cache)
        hidden, _ = self.norm(hidden, residual)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [L, hidden_size], rows of `forward`'s result -> [L, vocab_size]"""
        return self.lm_head(hidden)
