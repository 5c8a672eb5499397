"""The hybrids in GGUF files: how their weights are named and laid out. Torch-free.

llama.cpp stores what its kernels want: norms as `1 + w`, `A_log` as `-exp(A_log)`, and for
`qwen35` and `qwen35moe` value heads tiled over the key heads (first value head of each key head,
then the second of each, ...) where Hugging Face has those of a key head together. All of it is
undone here. `qwen3next` keeps the order of heads, and b and a in one interleaved matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Self

from thalweg.config.model import GatedDeltaNetConfig
from thalweg.models.gguf_names import ATTENTION, MLP, MOE, StoredNames
from thalweg.models.hf_weights import interleaved
from thalweg.models.weight_map import Recipe, Undo

if TYPE_CHECKING:
    from thalweg.config.model import ModelConfig
    from thalweg.models.plan import WeightSpec

GATED_DELTA_NET = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
VECTORS = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
"""Whose names in the file are not of the form stem.kind."""
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    **ATTENTION,
    **MLP,
    **MOE,
    **GATED_DELTA_NET,
}
TILED = "value heads put together by key head"


@dataclass(frozen=True, slots=True)
class HybridWeights:
    names: StoredNames
    tiled_heads: bool

    @classmethod
    def tiled(cls, config: ModelConfig) -> Self:
        """`qwen35`, `qwen35moe`"""
        return cls(StoredNames(len(config.layers), LAYER), tiled_heads=True)

    @classmethod
    def grouped(cls, config: ModelConfig) -> Self:
        """`qwen3next`"""
        return cls(StoredNames(len(config.layers), LAYER), tiled_heads=False)

    def recipes(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        if ".mlp.experts." in weight.name:
            return self.names.experts(weight)
        stem, found, part = weight.name.partition(".linear_attn.")
        if found and weight.layer and isinstance(weight.layer.mixer, GatedDeltaNetConfig):
            return self._gated_delta_net(weight, stem, part.removesuffix(".weight"))
        plain = Recipe.plain(self.names.of(weight.name), weight.shape)
        if "norm" in weight.name.rpartition("layers.")[2]:
            return (replace(plain, undo=Undo.ONE_ADDED, change="1 taken off norm weights"),)
        return (plain,)

    def skip_reason(self, name: str) -> str | None:
        return None

    def _gated_delta_net(self, weight: WeightSpec, stem: str, part: str) -> tuple[Recipe, ...]:
        assert weight.layer and isinstance(weight.layer.mixer, GatedDeltaNetConfig)
        gdn = weight.layer.mixer
        block = self.names.of(f"{stem}.input_layernorm.weight").removesuffix("attn_norm.weight")
        vector = VECTORS.get(f"linear_attn.{part}")
        name = block + vector if vector else self.names.of(weight.name)
        plain = Recipe.plain(name, weight.shape)
        if part == "A_log":
            plain = replace(plain, undo=Undo.NEGATED_EXP, change="A_log from -exp(A_log)")
        if self.tiled_heads:
            return (_untiled(plain, part, gdn),)
        if part in ("in_proj_b", "in_proj_a"):
            letter, hidden = part[-1], weight.shape[1]
            return (interleaved(gdn, letter, name=f"{block}ssm_ba.weight", hidden=hidden),)
        if part in ("in_proj_qkv", "in_proj_z"):  # Files before 2026 have them as transformers.
            letters, hidden = part.removeprefix("in_proj_"), weight.shape[1]
            older = interleaved(gdn, letters, name=f"{block}ssm_in.weight", hidden=hidden)
            return plain, older
        return (plain,)


def _untiled(plain: Recipe, part: str, gdn: GatedDeltaNetConfig) -> Recipe:
    if gdn.num_v_heads == gdn.num_k_heads or part == "norm":
        return plain
    change = "; ".join(filter(None, (plain.change, TILED)))
    if part == "out_proj":
        return replace(plain, columns=partial(_order, gdn, gdn.head_v_dim), change=change)
    width = 1 if part in ("in_proj_b", "in_proj_a", "A_log", "dt_bias") else gdn.head_v_dim
    kept = 2 * gdn.key_dim if part in ("in_proj_qkv", "conv1d") else 0
    return replace(plain, rows=partial(_order, gdn, width, kept=kept), change=change)


@cache
def _order(gdn: GatedDeltaNetConfig, width: int, *, kept: int = 0) -> tuple[int, ...]:
    """Stored position of each canonical one: `kept` in place, then value heads of `width`."""
    shared = gdn.num_v_heads // gdn.num_k_heads
    heads = (
        tile * gdn.num_k_heads + k_head
        for k_head in range(gdn.num_k_heads)
        for tile in range(shared)
    )
    tail = (kept + head * width + i for head in heads for i in range(width))
    return (*range(kept), *tail)
