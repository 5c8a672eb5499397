"""Readings of GGUF metadata that several architectures share. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.config.model import (
    AttentionConfig,
    LayerConfig,
    ModelConfig,
    MoEConfig,
    NormConfig,
    RopeConfig,
)
from thalweg.models.hf_fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.models.source import StoredTensor

END_IDS = ("eos", "eot", "eom")
SOFTMAX = 1
"""Of `expert_gating_func`."""
NO_MATHS = frozenset(
    {
        "expert_used_count",
        "feed_forward_length",
        "rope.dimension_sections",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "tensor_data_layout",
    }
)
"""Keys that may mean nothing: there are no experts or there is nothing else, no YaRN, no images."""


@dataclass(frozen=True, slots=True)
class GGUFFacts:
    """What a file says of its model, besides the weights."""

    own: Fields
    """The keys under the architecture's name, without it."""
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def gguf_facts(
    architecture: str, metadata: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> GGUFFacts:
    return GGUFFacts(_section(metadata, f"{architecture}."), metadata, tensors)


def read_num_layers(facts: GGUFFacts) -> int:
    """Of all layers, those of an MTP head included. Each has a tensor at least."""
    return facts.own.integer("block_count", most=max(1, len(facts.tensors)))


def read_attention(facts: GGUFFacts, *, rotary_dim: int | None = None) -> AttentionConfig:
    """`rotary_dim` is the only one the architecture has; None: the file says."""
    own = facts.own
    num_heads = own.integer("attention.head_count")
    num_kv_heads = own.integer("attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        raise own.error("attention.head_count_kv", f"a divisor of head_count = {num_heads}")
    head_dim = own.integer("attention.key_length", own.integer("embedding_length") // num_heads)
    own.only("attention.value_length", head_dim)
    rotary_dim = own.integer("rope.dimension_count", head_dim, most=head_dim)
    if rotary_dim % 2:
        raise own.error("rope.dimension_count", "an even number")
    return AttentionConfig(num_heads, num_kv_heads, head_dim, _rope(own, rotary_dim))


def read_whole_head_attention(facts: GGUFFacts) -> AttentionConfig:
    """Attention of an architecture that rotates all of a head and has no partial form."""
    attention = read_attention(facts)
    facts.own.only("rope.dimension_count", attention.head_dim)
    return attention


def read_moe(facts: GGUFFacts) -> MoEConfig:
    """The routed experts, whose weights llama.cpp normalises in every architecture here."""
    own = facts.own
    num_experts = own.integer("expert_count")
    per_token = own.integer("expert_used_count", most=num_experts)
    for name, allowed in (
        ("expert_gating_func", SOFTMAX),
        ("expert_weights_norm", True),
        ("expert_weights_scale", 1.0),
    ):
        own.only(name, allowed)
    size = own.integer(
        "expert_feed_forward_length", own.integer("feed_forward_length", 0, least=0) // per_token
    )
    return MoEConfig(num_experts, per_token, size, norm_topk_prob=True)


def assemble(
    facts: GGUFFacts,
    model_type: str,
    layers: tuple[LayerConfig, ...],
    *,
    zero_centered_norm: bool = False,
    mtp_layers: tuple[LayerConfig, ...] = (),
) -> ModelConfig:
    """What every architecture reads alike, around its layers.

    Tied where there is no `output.weight`, as in llama.cpp. Keys under the architecture's name are
    few, and nearly all change the maths: one that nothing has read is refused.
    """
    own = facts.own
    embedding = facts.tensors.get("token_embd.weight")
    eps = own.number("attention.layer_norm_rms_epsilon")
    config = ModelConfig(
        model_type=model_type,
        vocab_size=own.integer("vocab_size", embedding.info.shape[0] if embedding else None),
        hidden_size=own.integer("embedding_length"),
        layers=layers,
        norm=NormConfig(eps, zero_centered=zero_centered_norm),
        tie_word_embeddings="output.weight" not in facts.tensors,
        max_position_embeddings=own.integer("context_length"),
        mtp_layers=mtp_layers,
        eos_token_ids=_end_ids(facts.metadata),
    )
    for name in sorted({*own.unread()} - NO_MATHS):
        raise own.error(name, "a key that is not known")
    return config


def _section(metadata: Mapping[str, Any], prefix: str) -> Fields:
    values = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    return Fields(values, f"GGUF metadata {prefix}*")


def _rope(own: Fields, rotary_dim: int) -> RopeConfig:
    """Without a type a factor means linear scaling, as in llama.cpp."""
    theta = own.number("rope.freq_base", 10_000.0)
    own.only("rope.scaling.type", "none", "linear", "yarn")
    kind = own.get("rope.scaling.type")
    factor = own.number("rope.scaling.factor", 1.0)
    if factor == 1.0 or kind == "none":
        return RopeConfig(rotary_dim, theta)
    if kind != "yarn":
        return RopeConfig(rotary_dim, theta, "linear", (("factor", factor),))
    context = float(own.integer("rope.scaling.original_context_length"))
    params = {"factor": factor, "original_max_position_embeddings": context, "truncate": 1.0}
    for name in ("beta_fast", "beta_slow"):
        if f"rope.scaling.yarn_{name}" in own:
            params[name] = own.number(f"rope.scaling.yarn_{name}")
    return RopeConfig(rotary_dim, theta, "yarn", tuple(sorted(params.items())))


def _end_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    tokenizer = _section(metadata, "tokenizer.ggml.")
    found = (i for name in END_IDS for i in tokenizer.integers(f"{name}_token_id"))
    return tuple(dict.fromkeys(found))
