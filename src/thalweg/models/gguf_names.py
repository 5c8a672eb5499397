"""What llama.cpp calls the weights, and the layout of experts. Torch-free."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from thalweg.models.plan import WeightSpec
from thalweg.models.weight_map import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
MLP = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
MOE = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
PLAIN_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **ATTENTION,
    **MLP,
    **MOE,
}
OUTSIDE = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
MTP = {
    "fc": "nextn.eh_proj",
    "pre_fc_norm_embedding": "nextn.enorm",
    "pre_fc_norm_hidden": "nextn.hnorm",
    "norm": "nextn.shared_head_norm",
}


@dataclass(frozen=True, slots=True)
class StoredNames:
    """The blocks of an MTP head follow the model's, and the first has what is outside of them."""

    num_layers: int
    layer: Mapping[str, str]
    """Canonical to stored, without the kind: `.weight` or `.bias`."""

    def of(self, name: str) -> str:
        stem, _, kind = name.rpartition(".")
        match = re.fullmatch(r"(mtp\.)?layers\.(\d+)\.(.*)", stem)
        if match:
            block = int(match[2]) + (self.num_layers if match[1] else 0)
            return f"{self.block(block)}{self.layer[match[3]]}.{kind}"
        if stem.startswith("mtp."):
            return f"{self.block(self.num_layers)}{MTP[stem.removeprefix('mtp.')]}.{kind}"
        return f"{OUTSIDE[stem]}.{kind}"

    def experts(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        """Of `...mlp.experts.gate_up_proj` or `down_proj`: each is one tensor for all experts, or
        gate and up are two."""
        stem, _, part = weight.name.rpartition(".mlp.experts.")
        block = self.of(f"{stem}.input_layernorm.weight").rpartition(".attn_norm")[0]
        if part == "down_proj":
            return (Recipe.plain(f"{block}.ffn_down_exps.weight", weight.shape),)
        num_experts, rows, hidden = weight.shape
        half = (num_experts, rows // 2, hidden)
        separate = Recipe(
            tuple(WeightSpec(f"{block}.ffn_{name}_exps.weight", half) for name in ("gate", "up")),
            rows=partial(_alternate, num_experts),
            change="experts' gate and up joined",
        )
        return separate, Recipe.plain(f"{block}.ffn_gate_up_exps.weight", weight.shape)

    @staticmethod
    def block(index: int) -> str:
        return f"blk.{index}."


@cache
def _alternate(num_experts: int) -> tuple[int, ...]:
    """gate of expert 0, up of expert 0, gate of expert 1, ..."""
    return tuple(part * num_experts + i for i in range(num_experts) for part in range(2))
