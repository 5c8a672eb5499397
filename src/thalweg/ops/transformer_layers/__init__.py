"""All layers of a model as one call, where one kernel computes all their parts.

It is made of the parts as they are bound, and does what calling them one by one does, with the same
bits. What it saves is the way there: between two calls the cores wait for Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.registry import Kernel, Op
from thalweg.ops.transformer_layers import cpu
from thalweg.ops.transformer_layers.parts import AttentionParts, GatedDeltaNetParts, LayerParts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from thalweg.batch import ForwardBatch

__all__ = [
    "OP",
    "AttentionParts",
    "GatedDeltaNetParts",
    "LayerParts",
    "TransformerLayers",
    "TransformerLayersProblem",
]


@dataclass(frozen=True, slots=True, eq=False)
class TransformerLayersProblem:
    layers: tuple[LayerParts, ...]

    def facts(self) -> str:
        recurrent = sum(isinstance(layer.mixer, GatedDeltaNetParts) for layer in self.layers)
        return f"{len(self.layers)} layers, {recurrent} recurrent"


class TransformerLayers(Protocol):
    def __call__(
        self,
        hidden: Tensor,
        residual: Tensor,
        batch: ForwardBatch,
        caches: Sequence[Mapping[str, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        """hidden, residual: [T, D], caches: each layer's -> what is still to be added, and the sum
        so far"""


OP: Op[TransformerLayersProblem, TransformerLayers] = Op(
    "transformer_layers", (Kernel("cpu", cpu.bind, cpu.reject),)
)
