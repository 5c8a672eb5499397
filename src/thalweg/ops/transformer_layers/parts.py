"""What a layer is made of: its ops, bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thalweg.ops.causal_conv1d import CausalConv1d
    from thalweg.ops.gated_delta_rule import DeltaGates, GatedDeltaRule
    from thalweg.ops.linear import Linear
    from thalweg.ops.mlp import MLP
    from thalweg.ops.moe import MoE
    from thalweg.ops.paged_attention import PagedAttention
    from thalweg.ops.rms_norm import AddRMSNorm, GatedRMSNorm, RMSNorm
    from thalweg.ops.rotary import Rotary


@dataclass(frozen=True, slots=True, eq=False)
class GatedDeltaNetParts:
    in_proj: Linear  # z | q | k | v | b | a
    gates: DeltaGates
    conv: CausalConv1d
    delta_rule: GatedDeltaRule
    norm: GatedRMSNorm
    out_proj: Linear


@dataclass(frozen=True, slots=True, eq=False)
class AttentionParts:
    qkv_proj: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    rotary: Rotary
    attention: PagedAttention
    o_proj: Linear
    output_gate: bool
    """Each head of q is followed by its gate."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerParts:
    input_norm: AddRMSNorm
    mixer: GatedDeltaNetParts | AttentionParts
    post_norm: AddRMSNorm
    mlp: MLP | MoE
