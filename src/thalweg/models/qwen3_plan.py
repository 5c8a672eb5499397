"""Attention with normalised q and k: `qwen3`, and `qwen3_moe` with routed experts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.config.model import LayerConfig, ModelConfig
from thalweg.models.hf_layers import (
    FULL,
    assemble,
    read_layer_types,
    read_mlp,
    read_moe,
    read_sparse_layers,
    read_whole_head_attention,
    refuse_sliding_window,
    refuse_windowed_layers,
)

if TYPE_CHECKING:
    from thalweg.models.hf_config import HFConfig


def describe_qwen3(hf: HFConfig) -> ModelConfig:
    text = hf.text
    text.only("attention_bias", False)
    refuse_windowed_layers(text)
    attention = replace(read_whole_head_attention(text, head_dim=128), qk_norm=True)
    return assemble(
        hf, [LayerConfig(attention, read_mlp(text))] * text.integer("num_hidden_layers")
    )


def describe_qwen3_moe(hf: HFConfig) -> ModelConfig:
    text = hf.text
    text.only("attention_bias", False)
    read_layer_types(text, allowed=(FULL,))
    refuse_sliding_window(text, first_layer=0)
    attention = replace(read_whole_head_attention(text), qk_norm=True)
    moe = read_moe(text, norm_topk_prob=text.flag("norm_topk_prob", default=False))
    feed_forwards = read_sparse_layers(text, moe)
    return assemble(hf, [LayerConfig(attention, mlp) for mlp in feed_forwards])
