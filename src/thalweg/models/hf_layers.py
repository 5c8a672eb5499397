"""Readings of Hugging Face fields that several architectures share. Torch-free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.config.model import (
    AttentionConfig,
    FeedForwardConfig,
    LayerConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
    NormConfig,
)
from thalweg.models.hf_rope import read_rope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from thalweg.models.hf_config import HFConfig
    from thalweg.models.hf_fields import Fields

FULL, LINEAR = "full_attention", "linear_attention"


def read_attention(
    text: Fields, *, head_dim: int | None = None, rotary_fraction: float = 1.0
) -> AttentionConfig:
    """Heads and rotation; `head_dim` is the architecture's default, None: hidden size / heads."""
    num_heads = text.integer("num_attention_heads")
    num_kv_heads = text.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise text.error("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    if head_dim is None:
        head_dim = text.integer("hidden_size") // num_heads
    head_dim = text.integer("head_dim", head_dim)
    rope = read_rope(text, head_dim, default_fraction=rotary_fraction)
    return AttentionConfig(num_heads, num_kv_heads, head_dim, rope)


def read_whole_head_attention(text: Fields, *, head_dim: int | None = None) -> AttentionConfig:
    """Attention of an architecture that rotates all of a head and has no partial form."""
    attention = read_attention(text, head_dim=head_dim)
    if attention.rope.rotary_dim != attention.head_dim:
        raise text.error("partial_rotary_factor", "this architecture rotates whole heads")
    return attention


def read_mlp(text: Fields) -> MLPConfig:
    return MLPConfig(text.integer("intermediate_size"))


def read_moe(text: Fields, *, norm_topk_prob: bool) -> MoEConfig:
    """The routed experts; a shared one is the architecture's to add."""
    # transformers calls the field num_local_experts in some saved configs.
    name = "num_local_experts" if "num_local_experts" in text else "num_experts"
    num_experts = text.integer(name)
    per_token = text.integer("num_experts_per_tok")
    if per_token > num_experts:
        raise text.error("num_experts_per_tok", f"at most {name} = {num_experts}")
    return MoEConfig(
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        intermediate_size=text.integer("moe_intermediate_size"),
        norm_topk_prob=norm_topk_prob,
    )


def with_shared_expert(moe: MoEConfig, text: Fields) -> MoEConfig:
    size = text.integer("shared_expert_intermediate_size")
    return replace(moe, shared_intermediate_size=size)


def read_sparse_layers(text: Fields, moe: MoEConfig) -> tuple[FeedForwardConfig, ...]:
    """The feed-forward part of every layer: `mlp_only_layers` and `decoder_sparse_step` say which
    are plain MLPs, whose size is needed only then."""
    dense = frozenset(text.integers("mlp_only_layers"))
    step = text.integer("decoder_sparse_step", 1)
    sparse = [
        i not in dense and (i + 1) % step == 0 for i in range(text.integer("num_hidden_layers"))
    ]
    mlp = moe if all(sparse) else read_mlp(text)
    return tuple(moe if is_sparse else mlp for is_sparse in sparse)


def read_layer_types(text: Fields, *, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """`layer_types` as it stands, or empty where the config has none."""
    kinds = text.strings("layer_types")
    num_layers = text.integer("num_hidden_layers")
    if kinds and len(kinds) != num_layers:
        raise text.error("layer_types", f"one entry for each of {num_layers} layers")
    if not set(kinds) <= set(allowed):
        raise text.error("layer_types", "only " + ", ".join(allowed))
    return kinds


def refuse_windowed_layers(text: Fields) -> None:
    """For qwen2 and qwen3: `layer_types` says which layers look at a window only, or else they are
    those from `max_window_layers` on."""
    if not read_layer_types(text, allowed=(FULL,)):
        refuse_sliding_window(text, first_layer=text.integer("max_window_layers", 28, least=0))


def refuse_sliding_window(text: Fields, *, first_layer: int) -> None:
    """Refuses a window that some layer from `first_layer` on would really use."""
    uses_window = text.flag("use_sliding_window", default=False)
    window = text.get("sliding_window")
    if uses_window and window is not None and first_layer < text.integer("num_hidden_layers"):
        raise text.error("use_sliding_window", "only false")


def assemble(
    hf: HFConfig,
    layers: Iterable[LayerConfig],
    *,
    zero_centered_norm: bool = False,
    mtp_layers: tuple[LayerConfig, ...] = (),
) -> ModelConfig:
    """What every architecture reads alike, around its layers."""
    text = hf.text
    text.only("hidden_act", "silu")
    return ModelConfig(
        model_type=hf.model_type,
        vocab_size=text.integer("vocab_size"),
        hidden_size=text.integer("hidden_size"),
        layers=tuple(layers),
        norm=NormConfig(text.number("rms_norm_eps", 1e-6), zero_centered=zero_centered_norm),
        tie_word_embeddings=hf.tie_word_embeddings,
        max_position_embeddings=text.integer("max_position_embeddings"),
        mtp_layers=mtp_layers,
        eos_token_ids=hf.eos_token_ids,
    )
