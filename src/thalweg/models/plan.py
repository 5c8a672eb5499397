"""Every weight a model has, under its canonical name, from its facts alone. Torch-free.

Canonical names are those of Hugging Face's qwen3_5 without the `model.` in front. Checkpoint
formats are mapped onto them (`weight_map`), layers ask for them, memory plans add up their shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from thalweg.config.model import (
    AttentionConfig,
    GatedDeltaNetConfig,
    LayerConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
)

Shape = tuple[int, ...]
NamedShapes = Iterator[tuple[str, Shape]]


@dataclass(frozen=True, slots=True)
class WeightSpec:
    name: str
    shape: Shape
    layer: LayerConfig | None = None
    """The facts of the layer it belongs to; None for what lies outside the layers."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    config: ModelConfig
    weights: tuple[WeightSpec, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> ModelPlan:
        return cls(config, tuple(_model_weights(config)))


def _model_weights(config: ModelConfig) -> Iterator[WeightSpec]:
    hidden, vocab = config.hidden_size, config.vocab_size
    yield WeightSpec("embed_tokens.weight", (vocab, hidden))
    yield from _stack_weights(config.layers, "layers", hidden=hidden)
    yield WeightSpec("norm.weight", (hidden,))
    if not config.tie_word_embeddings:
        yield WeightSpec("lm_head.weight", (vocab, hidden))
    if config.mtp_layers:
        yield WeightSpec("mtp.fc.weight", (hidden, 2 * hidden))
        yield WeightSpec("mtp.pre_fc_norm_embedding.weight", (hidden,))
        yield WeightSpec("mtp.pre_fc_norm_hidden.weight", (hidden,))
        yield from _stack_weights(config.mtp_layers, "mtp.layers", hidden=hidden)
        yield WeightSpec("mtp.norm.weight", (hidden,))


def _stack_weights(
    layers: tuple[LayerConfig, ...], name: str, *, hidden: int
) -> Iterator[WeightSpec]:
    for i, layer in enumerate(layers):
        for part, shape in _layer_weights(layer, hidden):
            yield WeightSpec(f"{name}.{i}.{part}", shape, layer)


def _layer_weights(layer: LayerConfig, hidden: int) -> NamedShapes:
    yield "input_layernorm.weight", (hidden,)
    match layer.mixer:
        case AttentionConfig() as attention:
            yield from _attention_weights(attention, hidden)
        case GatedDeltaNetConfig() as gdn:
            yield from _gated_delta_net_weights(gdn, hidden)
    yield "post_attention_layernorm.weight", (hidden,)
    match layer.mlp:
        case MLPConfig() as mlp:
            yield from _mlp_weights("mlp", mlp.intermediate_size, hidden=hidden)
        case MoEConfig() as moe:
            yield from _moe_weights(moe, hidden)


def _attention_weights(attention: AttentionConfig, hidden: int) -> NamedShapes:
    head_dim = attention.head_dim
    out_dim = attention.num_heads * head_dim
    kv_dim = attention.num_kv_heads * head_dim
    q_dim = 2 * out_dim if attention.output_gate else out_dim
    for name, rows in (("q", q_dim), ("k", kv_dim), ("v", kv_dim)):
        yield f"self_attn.{name}_proj.weight", (rows, hidden)
        if attention.qkv_bias:
            yield f"self_attn.{name}_proj.bias", (rows,)
    yield "self_attn.o_proj.weight", (hidden, out_dim)
    if attention.qk_norm:
        yield "self_attn.q_norm.weight", (head_dim,)
        yield "self_attn.k_norm.weight", (head_dim,)


def _gated_delta_net_weights(gdn: GatedDeltaNetConfig, hidden: int) -> NamedShapes:
    yield "linear_attn.in_proj_qkv.weight", (gdn.conv_dim, hidden)
    yield "linear_attn.in_proj_z.weight", (gdn.value_dim, hidden)
    yield "linear_attn.in_proj_b.weight", (gdn.num_v_heads, hidden)
    yield "linear_attn.in_proj_a.weight", (gdn.num_v_heads, hidden)
    yield "linear_attn.conv1d.weight", (gdn.conv_dim, gdn.conv_kernel_size)
    yield "linear_attn.A_log", (gdn.num_v_heads,)
    yield "linear_attn.dt_bias", (gdn.num_v_heads,)
    yield "linear_attn.norm.weight", (gdn.head_v_dim,)
    yield "linear_attn.out_proj.weight", (hidden, gdn.value_dim)


def _mlp_weights(name: str, intermediate_size: int, *, hidden: int) -> NamedShapes:
    yield f"{name}.gate_proj.weight", (intermediate_size, hidden)
    yield f"{name}.up_proj.weight", (intermediate_size, hidden)
    yield f"{name}.down_proj.weight", (hidden, intermediate_size)


def _moe_weights(moe: MoEConfig, hidden: int) -> NamedShapes:
    yield "mlp.gate.weight", (moe.num_experts, hidden)
    yield "mlp.experts.gate_up_proj", (moe.num_experts, 2 * moe.intermediate_size, hidden)
    yield "mlp.experts.down_proj", (moe.num_experts, hidden, moe.intermediate_size)
    if moe.shared_intermediate_size:
        yield from _mlp_weights("mlp.shared_expert", moe.shared_intermediate_size, hidden=hidden)
        yield "mlp.shared_expert_gate.weight", (1, hidden)
