"""The shape of the tiny model, and the `config.json` that describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Field names follow `Qwen3_5TextConfig` of transformers."""

    vocab_size: int = 2560
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 6
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 32
    linear_conv_kernel_dim: int = 4
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 0.25
    max_position_embeddings: int = 4096

    def is_attention(self, layer: int) -> bool:
        """Whether `layer` (from 0) is full attention; every other layer is a gated DeltaNet."""
        return (layer + 1) % self.full_attention_interval == 0

    @property
    def rotary_dim(self) -> int:
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def linear_key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim


def to_json(config: ModelConfig, *, eos_token_id: int, pad_token_id: int) -> dict[str, Any]:
    """The content of `config.json`.

    `num_mtp_layers` and `mtp_layer_types` are what transformers' `MtpModel` reads;
    `mtp_num_hidden_layers` is the name in Qwen's own checkpoints.
    """
    layers = range(config.num_hidden_layers)
    kinds = ["full_attention" if config.is_attention(i) else "linear_attention" for i in layers]
    rotary = config.rotary_dim // 2
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "layer_types": kinds,
        "full_attention_interval": config.full_attention_interval,
        "linear_num_key_heads": config.linear_num_key_heads,
        "linear_num_value_heads": config.linear_num_value_heads,
        "linear_key_head_dim": config.linear_key_head_dim,
        "linear_value_head_dim": config.linear_value_head_dim,
        "linear_conv_kernel_dim": config.linear_conv_kernel_dim,
        "attn_output_gate": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config.rope_theta,
            "partial_rotary_factor": config.partial_rotary_factor,
            "mrope_interleaved": True,
            "mrope_section": [rotary - 2 * (rotary // 3), rotary // 3, rotary // 3],
        },
        "tie_word_embeddings": True,
        "mtp_num_hidden_layers": 1,
        "num_mtp_layers": 1,
        "mtp_layer_types": ["full_attention"],
        "bos_token_id": None,
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
        "dtype": "bfloat16",
        "use_cache": True,
    }
