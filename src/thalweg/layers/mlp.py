"""The dense feed-forward part of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.layers.linear import Linear
from thalweg.ops import silu_and_mul

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import MLPConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))"""

    def __init__(self, config: MLPConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.gate_up_proj = Linear(["gate_proj", "up_proj"], weights, build)
        self.down_proj = Linear(["down_proj"], weights, build)
        self.activation = build.kernels.bind(
            silu_and_mul.OP, silu_and_mul.SiluAndMulProblem(config.intermediate_size, build.dtype)
        )

    def forward(self, x: Tensor, batch: ForwardBatch) -> Tensor:
        """x: [T, hidden_size] -> [T, hidden_size]"""
        return self.down_proj(self.activation(self.gate_up_proj(x, batch)), batch)
