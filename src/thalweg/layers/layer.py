"""One concrete layer. Hybrid models differ only in what is inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.config import (
    AttentionConfig,
    FeedForwardConfig,
    GatedDeltaNetConfig,
    LayerConfig,
    MixerConfig,
    MLPConfig,
)
from thalweg.layers.attention import Attention
from thalweg.layers.gated_delta_net import GatedDeltaNet
from thalweg.layers.mlp import MLP
from thalweg.layers.moe import MoE
from thalweg.layers.norm import AddRMSNorm
from thalweg.ops.transformer_layers import LayerParts

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.layers.build import BuildContext
    from thalweg.layers.mixer import TokenMixer
    from thalweg.layers.weights import Weights
    from thalweg.memory.spec import CacheSpec
    from thalweg.memory.storage import LayerCache


class TransformerLayer(nn.Module):
    """add-norm -> mixer -> add-norm -> mlp"""

    def __init__(self, config: LayerConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.input_layernorm = AddRMSNorm(weights.scope("input_layernorm"), build)
        self.mixer = build_mixer(config.mixer, weights, build)
        self.post_attention_layernorm = AddRMSNorm(weights.scope("post_attention_layernorm"), build)
        self.mlp = build_mlp(config.mlp, weights.scope("mlp"), build)

    @property
    def cache_spec(self) -> CacheSpec:
        return self.mixer.cache_spec

    @property
    def parts(self) -> LayerParts:
        """Its bound ops, for a kernel that does whole layers."""
        return LayerParts(
            self.input_layernorm.norm,
            self.mixer.parts,
            self.post_attention_layernorm.norm,
            self.mlp.product,
        )

    def forward(
        self, hidden: Tensor, residual: Tensor, batch: ForwardBatch, cache: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """hidden, residual: [T, hidden_size] -> what is still to be added, and the sum so far"""
        hidden, residual = self.input_layernorm(hidden, residual)
        hidden = self.mixer(hidden, batch, cache)
        hidden, residual = self.post_attention_layernorm(hidden, residual)
        return self.mlp(hidden, batch), residual


def build_mixer(config: MixerConfig, weights: Weights, build: BuildContext) -> TokenMixer:
    match config:
        case AttentionConfig():
            return Attention(config, weights.scope("self_attn"), build)
        case GatedDeltaNetConfig():
            return GatedDeltaNet(config, weights.scope("linear_attn"), build)


def build_mlp(config: FeedForwardConfig, weights: Weights, build: BuildContext) -> MLP | MoE:
    match config:
        case MLPConfig():
            return MLP(config, weights, build)
        case _:
            return MoE(config, weights, build)
