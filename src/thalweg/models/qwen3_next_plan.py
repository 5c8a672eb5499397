"""The hybrids: gated DeltaNet and gated attention in one stack, zero-centred norms, an MTP head.

`qwen3_next` (experts), `qwen3_5` (plain MLPs; Qwen3.6 and 3.8 dense too) and `qwen3_5_moe`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.config.model import (
    AttentionConfig,
    FeedForwardConfig,
    GatedDeltaNetConfig,
    LayerConfig,
    ModelConfig,
)
from thalweg.models.hf_layers import (
    FULL,
    LINEAR,
    assemble,
    read_attention,
    read_layer_types,
    read_mlp,
    read_moe,
    read_sparse_layers,
    with_shared_expert,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.models.hf_config import HFConfig
    from thalweg.models.hf_fields import Fields


def describe_qwen3_next(hf: HFConfig) -> ModelConfig:
    text = hf.text
    moe = read_moe(text, norm_topk_prob=text.flag("norm_topk_prob", default=True))
    moe = with_shared_expert(moe, text)
    return _hybrid(hf, read_sparse_layers(text, moe), mtp_feed_forward=moe)


def describe_qwen3_5(hf: HFConfig) -> ModelConfig:
    mlp = read_mlp(hf.text)
    return _hybrid(hf, [mlp] * hf.text.integer("num_hidden_layers"), mtp_feed_forward=mlp)


def describe_qwen3_5_moe(hf: HFConfig) -> ModelConfig:
    text = hf.text
    text.only("norm_topk_prob", True)
    text.only("mlp_only_layers", [])
    text.only("decoder_sparse_step", 1)
    moe = with_shared_expert(read_moe(text, norm_topk_prob=True), text)
    return _hybrid(hf, [moe] * text.integer("num_hidden_layers"), mtp_feed_forward=moe)


def _hybrid(
    hf: HFConfig, feed_forwards: Sequence[FeedForwardConfig], *, mtp_feed_forward: FeedForwardConfig
) -> ModelConfig:
    text = hf.text
    text.only("attention_bias", False)
    text.only("attn_output_gate", True)
    text.only("output_gate_type", "swish", "silu")
    text.only("mtp_use_dedicated_embeddings", False)
    attention, gdn = _gated_attention(text), _gated_delta_net(text)
    mixers = [attention if kind == FULL else gdn for kind in _layer_types(text)]
    # qwen3_next checkpoints have a head that their config does not mention, so one is expected. The
    # loader drops it where a checkpoint has no mtp tensors, and nothing else follows from that.
    num_mtp_layers = text.integer("mtp_num_hidden_layers", 1, least=0) or 1
    return assemble(
        hf,
        [LayerConfig(mixer, mlp) for mixer, mlp in zip(mixers, feed_forwards, strict=True)],
        zero_centered_norm=True,
        mtp_layers=(LayerConfig(attention, mtp_feed_forward),) * num_mtp_layers,
    )


def _layer_types(text: Fields) -> tuple[str, ...]:
    if kinds := read_layer_types(text, allowed=(FULL, LINEAR)):
        return kinds
    interval = text.integer("full_attention_interval", 4)
    num_layers = text.integer("num_hidden_layers")
    return tuple(LINEAR if (i + 1) % interval else FULL for i in range(num_layers))


def _gated_attention(text: Fields) -> AttentionConfig:
    attention = read_attention(text, head_dim=256, rotary_fraction=0.25)
    return replace(attention, qk_norm=True, output_gate=True)


def _gated_delta_net(text: Fields) -> GatedDeltaNetConfig:
    gdn = GatedDeltaNetConfig(
        num_k_heads=text.integer("linear_num_key_heads"),
        num_v_heads=text.integer("linear_num_value_heads"),
        head_k_dim=text.integer("linear_key_head_dim"),
        head_v_dim=text.integer("linear_value_head_dim"),
        conv_kernel_size=text.integer("linear_conv_kernel_dim", least=2),
    )
    if gdn.num_v_heads % gdn.num_k_heads:
        raise text.error(
            "linear_num_value_heads", f"a multiple of linear_num_key_heads = {gdn.num_k_heads}"
        )
    return gdn
