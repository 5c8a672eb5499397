"""`llama` in GGUF files: facts from the metadata, and how its weights are named and laid out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Self

from thalweg.config.model import AttentionConfig, LayerConfig, MLPConfig, ModelConfig
from thalweg.models.gguf_facts import (
    GGUFFacts,
    assemble,
    read_num_layers,
    read_whole_head_attention,
)
from thalweg.models.gguf_llama3 import FACTORS, read_llama3
from thalweg.models.gguf_names import PLAIN_LAYER, StoredNames
from thalweg.models.weight_map import Recipe

if TYPE_CHECKING:
    from thalweg.models.plan import WeightSpec


def describe_gguf_llama(facts: GGUFFacts) -> ModelConfig:
    for name in ("expert_count", "attention.sliding_window"):
        facts.own.only(name, 0)
    mlp = MLPConfig(facts.own.integer("feed_forward_length"))
    attention = read_whole_head_attention(facts)
    if FACTORS in facts.tensors:
        attention = replace(attention, rope=read_llama3(facts.tensors[FACTORS], attention.rope))
    layer = LayerConfig(attention, mlp)
    return assemble(facts, "llama", (layer,) * read_num_layers(facts))


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """llama.cpp rotates neighbouring channels, so its converter interleaves the halves of each head
    of q and k; here they are taken apart again."""

    names: StoredNames

    @classmethod
    def of(cls, config: ModelConfig) -> Self:
        return cls(StoredNames(len(config.layers), PLAIN_LAYER))

    def recipes(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        name = self.names.of(weight.name)
        plain = Recipe.plain(name, weight.shape)
        part = name.rpartition(".attn_")[2]
        if part not in ("q.weight", "k.weight") or weight.layer is None:
            return (plain,)
        assert isinstance(weight.layer.mixer, AttentionConfig)
        rows = partial(_halves, weight.shape[0], weight.layer.mixer.head_dim)
        return (Recipe(plain.sources, rows, change="rotary halves un-interleaved"),)

    def skip_reason(self, name: str) -> str | None:
        return "rope factors: read as llama3 scaling" if name == FACTORS else None


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
