"""`qwen2`, `qwen3` and `qwen3moe` in GGUF files: plain attention in every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from thalweg.config.model import LayerConfig, MLPConfig, ModelConfig
from thalweg.models.gguf_facts import (
    GGUFFacts,
    assemble,
    read_moe,
    read_num_layers,
    read_whole_head_attention,
)
from thalweg.models.gguf_names import PLAIN_LAYER, StoredNames
from thalweg.models.weight_map import Recipe

if TYPE_CHECKING:
    from thalweg.config.model import AttentionConfig, FeedForwardConfig
    from thalweg.models.plan import WeightSpec


def describe_gguf_qwen2(facts: GGUFFacts) -> ModelConfig:
    attention = replace(read_whole_head_attention(facts), qkv_bias=True)
    return _uniform(facts, "qwen2", attention, _mlp(facts))


def describe_gguf_qwen3(facts: GGUFFacts) -> ModelConfig:
    attention = replace(read_whole_head_attention(facts), qk_norm=True)
    return _uniform(facts, "qwen3", attention, _mlp(facts))


def describe_gguf_qwen3_moe(facts: GGUFFacts) -> ModelConfig:
    attention = replace(read_whole_head_attention(facts), qk_norm=True)
    return _uniform(facts, "qwen3_moe", attention, read_moe(facts))


def _mlp(facts: GGUFFacts) -> MLPConfig:
    return MLPConfig(facts.own.integer("feed_forward_length"))


def _uniform(
    facts: GGUFFacts, model_type: str, attention: AttentionConfig, mlp: FeedForwardConfig
) -> ModelConfig:
    layers = (LayerConfig(attention, mlp),) * read_num_layers(facts)
    return assemble(facts, model_type, layers)


@dataclass(frozen=True, slots=True)
class QwenWeights:
    """Stored as they are used, but for the experts' two matrices."""

    names: StoredNames

    @classmethod
    def of(cls, config: ModelConfig) -> Self:
        return cls(StoredNames(len(config.layers), PLAIN_LAYER))

    def recipes(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        if ".mlp.experts." in weight.name:
            return self.names.experts(weight)
        return (Recipe.plain(self.names.of(weight.name), weight.shape),)

    def skip_reason(self, name: str) -> str | None:
        return None
