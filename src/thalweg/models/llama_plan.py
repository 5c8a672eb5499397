"""Plain attention and a plain MLP in every layer: `llama`, and `qwen2`, which biases q, k and v."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.config.model import LayerConfig, ModelConfig
from thalweg.models.hf_layers import (
    assemble,
    read_mlp,
    read_whole_head_attention,
    refuse_windowed_layers,
)

if TYPE_CHECKING:
    from thalweg.models.hf_config import HFConfig


def describe_llama(hf: HFConfig) -> ModelConfig:
    hf.text.only("attention_bias", False)
    hf.text.only("mlp_bias", False)
    layer = LayerConfig(read_whole_head_attention(hf.text), read_mlp(hf.text))
    return assemble(hf, [layer] * hf.text.integer("num_hidden_layers"))


def describe_qwen2(hf: HFConfig) -> ModelConfig:
    text = hf.text
    refuse_windowed_layers(text)
    attention = replace(read_whole_head_attention(text), qkv_bias=True)
    return assemble(
        hf, [LayerConfig(attention, read_mlp(text))] * text.integer("num_hidden_layers")
    )
