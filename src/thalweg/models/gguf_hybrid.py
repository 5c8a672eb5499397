"""The hybrids in GGUF files: `qwen3next`, `qwen35` and `qwen35moe`, facts from the metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.config.model import (
    AttentionConfig,
    FeedForwardConfig,
    GatedDeltaNetConfig,
    LayerConfig,
    MLPConfig,
    ModelConfig,
)
from thalweg.models.gguf_facts import assemble, read_attention, read_moe, read_num_layers

if TYPE_CHECKING:
    from thalweg.models.gguf_facts import GGUFFacts


def describe_gguf_qwen3_next(facts: GGUFFacts) -> ModelConfig:
    return _hybrid(facts, "qwen3_next", _shared_moe(facts))


def describe_gguf_qwen3_5(facts: GGUFFacts) -> ModelConfig:
    mlp = MLPConfig(facts.own.integer("feed_forward_length"))
    return _hybrid(facts, "qwen3_5_text", mlp)


def describe_gguf_qwen3_5_moe(facts: GGUFFacts) -> ModelConfig:
    return _hybrid(facts, "qwen3_5_moe_text", _shared_moe(facts))


def _shared_moe(facts: GGUFFacts) -> FeedForwardConfig:
    own = facts.own
    size = own.integer("expert_shared_feed_forward_length", own.integer("feed_forward_length", 1))
    return replace(read_moe(facts), shared_intermediate_size=size)


def _hybrid(facts: GGUFFacts, model_type: str, mlp: FeedForwardConfig) -> ModelConfig:
    attention, gdn = _gated_attention(facts), _gated_delta_net(facts)
    num_blocks = read_num_layers(facts)
    num_mtp_layers = facts.own.integer("nextn_predict_layers", 0, least=0, most=num_blocks - 1)
    recurrent = _recurrent(facts, num_blocks)[: num_blocks - num_mtp_layers]
    return assemble(
        facts,
        model_type,
        tuple(LayerConfig(gdn if is_gdn else attention, mlp) for is_gdn in recurrent),
        zero_centered_norm=True,
        mtp_layers=(LayerConfig(attention, mlp),) * num_mtp_layers,
    )


def _recurrent(facts: GGUFFacts, num_blocks: int) -> list[bool]:
    """Whether a block is gated DeltaNet, for every block: named, or all but each fourth."""
    interval = facts.own.integer("full_attention_interval", 4)
    named = facts.own.get("attention.recurrent_layers")
    if named is None:
        return [(i + 1) % interval != 0 for i in range(num_blocks)]
    if not isinstance(named, list) or len(named) < num_blocks:
        raise facts.own.error("attention.recurrent_layers", f"{num_blocks} of true or false")
    return [bool(each) for each in named]


def _gated_attention(facts: GGUFFacts) -> AttentionConfig:
    return replace(read_attention(facts), qk_norm=True, output_gate=True)


def _gated_delta_net(facts: GGUFFacts) -> GatedDeltaNetConfig:
    own = facts.own
    num_k_heads, num_v_heads = own.integer("ssm.group_count"), own.integer("ssm.time_step_rank")
    if num_v_heads % num_k_heads:
        raise own.error("ssm.time_step_rank", f"a multiple of ssm.group_count = {num_k_heads}")
    inner = own.integer("ssm.inner_size")
    if inner % num_v_heads:
        raise own.error("ssm.inner_size", f"a multiple of ssm.time_step_rank = {num_v_heads}")
    return GatedDeltaNetConfig(
        num_k_heads=num_k_heads,
        num_v_heads=num_v_heads,
        head_k_dim=own.integer("ssm.state_size"),
        head_v_dim=inner // num_v_heads,
        conv_kernel_size=own.integer("ssm.conv_kernel", least=2),
    )
