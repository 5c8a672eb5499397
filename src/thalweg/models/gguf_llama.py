"""`llama` in GGUF files: facts from the metadata, and how its weights are named and laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from thalweg.config.model import (
    AttentionConfig,
    LayerConfig,
    MLPConfig,
    ModelConfig,
    NormConfig,
    RopeConfig,
)
from thalweg.errors import CheckpointError
from thalweg.models.hf_fields import Fields
from thalweg.models.weight_map import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.models.plan import WeightSpec
    from thalweg.models.source import TensorInfo

END_IDS = ("eos", "eot", "eom")
NO_MATHS = {"expert_used_count", "tensor_data_layout"}
NO_MATHS |= {"rope.scaling.finetuned", "rope.scaling.original_context_length"}
"""Keys under `llama.` that say nothing about a model without experts and without YaRN."""


def describe_gguf_llama(
    metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo]
) -> ModelConfig:
    """Tied where there is no `output.weight`, as in llama.cpp.

    Keys under `llama.` are few, and nearly all change the maths: one we do not know is refused.
    """
    if "rope_freqs.weight" in tensors:
        raise CheckpointError(
            "GGUF tensor rope_freqs.weight (llama3 rope scaling) is not supported: "
            "use the Hugging Face checkpoint"
        )
    llama = _section(metadata, "llama.")
    for name in ("expert_count", "attention.sliding_window"):
        llama.only(name, 0)
    layer = LayerConfig(_attention(llama), MLPConfig(llama.integer("feed_forward_length")))
    config = ModelConfig(
        model_type="llama",
        vocab_size=_vocab_size(llama, tensors),
        hidden_size=llama.integer("embedding_length"),
        layers=(layer,) * llama.integer("block_count"),
        norm=NormConfig(llama.number("attention.layer_norm_rms_epsilon")),
        tie_word_embeddings="output.weight" not in tensors,
        max_position_embeddings=llama.integer("context_length"),
        eos_token_ids=_end_ids(metadata),
    )
    for name in sorted({*llama.unread()} - NO_MATHS):
        raise llama.error(name, "a key that is not known")
    return config


def _section(metadata: Mapping[str, Any], prefix: str) -> Fields:
    values = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    return Fields(values, f"GGUF metadata {prefix}*")


def _attention(llama: Fields) -> AttentionConfig:
    num_heads = llama.integer("attention.head_count")
    num_kv_heads = llama.integer("attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        raise llama.error("attention.head_count_kv", f"a divisor of head_count = {num_heads}")
    head_dim = llama.integer("embedding_length") // num_heads
    head_dim = llama.integer("attention.key_length", head_dim)
    for name in ("attention.value_length", "rope.dimension_count"):
        llama.only(name, head_dim)
    theta = llama.number("rope.freq_base", 10_000.0)
    return AttentionConfig(num_heads, num_kv_heads, head_dim, _rope(llama, head_dim, theta=theta))


def _rope(llama: Fields, head_dim: int, *, theta: float) -> RopeConfig:
    """Without a type a factor means linear scaling, as in llama.cpp."""
    llama.only("rope.scaling.type", "none", "linear")
    factor = llama.number("rope.scaling.factor", 1.0)
    if factor == 1.0 or llama.get("rope.scaling.type") == "none":
        return RopeConfig(head_dim, theta)
    return RopeConfig(head_dim, theta, "linear", (("factor", factor),))


def _vocab_size(llama: Fields, tensors: Mapping[str, TensorInfo]) -> int:
    embedding = tensors.get("token_embd.weight")
    return llama.integer("vocab_size", embedding.shape[0] if embedding else None)


def _end_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    tokenizer = _section(metadata, "tokenizer.ggml.")
    found = (i for name in END_IDS for i in tokenizer.integers(f"{name}_token_id"))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """llama.cpp rotates neighbouring channels, so its converter interleaves the halves of each head
    of q and k; here they are taken apart again."""

    def recipes(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        name = _stored_name(weight.name)
        plain = Recipe.plain(name, weight.shape)
        part = name.rpartition(".attn_")[2]
        if part not in ("q.weight", "k.weight") or weight.layer is None:
            return (plain,)
        assert isinstance(weight.layer.mixer, AttentionConfig)
        rows = _halves(weight.shape[0], weight.layer.mixer.head_dim)
        return (Recipe(plain.sources, rows, change="rotary halves un-interleaved"),)

    def skip_reason(self, name: str) -> str | None:
        return None


NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _stored_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    layer = re.match(r"layers\.(\d+)\.", stem)
    if layer is None:
        return f"{NAMES[stem]}.{kind}"
    return f"blk.{layer[1]}.{NAMES[stem.removeprefix(layer[0])]}.{kind}"


@cache
def _halves(num_rows: int, head_dim: int) -> tuple[int, ...]:
    """Row of the file for each canonical row: (head, half, i) lies at (head, i, half)."""
    half_dim = head_dim // 2
    return tuple(
        head + 2 * i + half
        for head in range(0, num_rows, head_dim)
        for half in range(2)
        for i in range(half_dim)
    )
