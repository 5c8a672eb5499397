"""The dense feed-forward part of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.layers.linear import matrix
from thalweg.ops import mlp

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import MLPConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))"""

    def __init__(self, config: MLPConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        gate_up = [weights.stored(f"{name}.weight") for name in ("gate_proj", "up_proj")]
        down = [weights.stored("down_proj.weight")]
        self.product = build.kernels.bind(
            mlp.OP, mlp.MLPProblem(matrix(gate_up, build), matrix(down, build))
        )

    def forward(self, x: Tensor, batch: ForwardBatch) -> Tensor:
        """x: [T, hidden_size] -> [T, hidden_size]"""
        return self.product(x)
