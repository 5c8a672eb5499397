"""What a model is, as facts: modules, weight shapes and memory plans are all built from these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class NormConfig:
    """RMS norm: x / sqrt(mean(x^2) + eps) times w, or times (1 + w) if `zero_centered`."""

    eps: float
    zero_centered: bool = False


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding of a head's first `rotary_dim` channels, in halves (not interleaved)."""

    rotary_dim: int
    theta: float
    scaling: Literal["default", "linear", "llama3", "yarn"] = "default"
    scaling_params: tuple[tuple[str, float], ...] = ()
    """The numbers of the scaling rule under their checkpoint names, sorted: ("factor", 8.0), ..."""

    @property
    def params(self) -> Mapping[str, float]:
        return dict(self.scaling_params)


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig
    qkv_bias: bool = False
    qk_norm: bool = False
    """q and k are RMS-normalised per head, with the model's norm, before the rotation."""
    output_gate: bool = False
    """q_proj yields [q | gate] per head and the output is multiplied by sigmoid(gate)."""


@dataclass(frozen=True, slots=True)
class GatedDeltaNetConfig:
    num_k_heads: int
    num_v_heads: int
    head_k_dim: int
    head_v_dim: int
    conv_kernel_size: int

    @property
    def key_dim(self) -> int:
        return self.num_k_heads * self.head_k_dim

    @property
    def value_dim(self) -> int:
        return self.num_v_heads * self.head_v_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: packed q | k | v."""
        return 2 * self.key_dim + self.value_dim


@dataclass(frozen=True, slots=True)
class MLPConfig:
    """down(silu(gate(x)) * up(x))"""

    intermediate_size: int


@dataclass(frozen=True, slots=True)
class MoEConfig:
    """Softmax router, top-k of `num_experts` MLPs, and a shared expert scaled by a sigmoid gate."""

    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    norm_topk_prob: bool
    shared_intermediate_size: int = 0
    """0: no shared expert."""


MixerConfig = AttentionConfig | GatedDeltaNetConfig
FeedForwardConfig = MLPConfig | MoEConfig


@dataclass(frozen=True, slots=True)
class LayerConfig:
    mixer: MixerConfig
    mlp: FeedForwardConfig


@dataclass(frozen=True, slots=True)
class ModelConfig:
    model_type: str
    vocab_size: int
    hidden_size: int
    layers: tuple[LayerConfig, ...]
    norm: NormConfig
    """Of every norm on the hidden size and of q and k; the norm inside GatedDeltaNet is plain."""
    tie_word_embeddings: bool
    max_position_embeddings: int
    mtp_layers: tuple[LayerConfig, ...] = ()
    """Layers of the multi-token-prediction head; empty: the checkpoint has none."""
    eos_token_ids: tuple[int, ...] = ()
    """End-of-text ids named by the checkpoint; generation ends at any of them."""
