"""A whole layer as one call, where one kernel computes all its parts.

It is made of the parts as they are bound, and does what calling them one by one does, with the same
bits. What it saves is the way there: between two calls the cores wait for Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.registry import Kernel, Op
from thalweg.ops.transformer_layer import cpu
from thalweg.ops.transformer_layer.parts import AttentionParts, GatedDeltaNetParts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.mlp import MLP
    from thalweg.ops.moe import MoE
    from thalweg.ops.rms_norm import AddRMSNorm

__all__ = [
    "OP",
    "AttentionParts",
    "GatedDeltaNetParts",
    "TransformerLayer",
    "TransformerLayerProblem",
]


@dataclass(frozen=True, slots=True, eq=False)
class TransformerLayerProblem:
    input_norm: AddRMSNorm
    mixer: GatedDeltaNetParts | AttentionParts
    post_norm: AddRMSNorm
    mlp: MLP | MoE

    def facts(self) -> str:
        recurrent = isinstance(self.mixer, GatedDeltaNetParts)
        return "gated delta net" if recurrent else "attention"


class TransformerLayer(Protocol):
    def __call__(
        self, hidden: Tensor, residual: Tensor, batch: ForwardBatch, cache: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """hidden, residual: [T, D] -> what is still to be added, and the sum so far"""


OP: Op[TransformerLayerProblem, TransformerLayer] = Op(
    "transformer_layer", (Kernel("cpu", cpu.bind, cpu.reject),)
)
