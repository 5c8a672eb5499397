"""The norms around and inside a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.ops import rms_norm

if TYPE_CHECKING:
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights


class RMSNorm(nn.Module):
    """The model's RMS norm over the last axis."""

    def __init__(self, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.norm = build.kernels.bind(rms_norm.OP, _problem(weights, build))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class AddRMSNorm(nn.Module):
    """Add to the residual stream, and normalise what it is now."""

    def __init__(self, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.norm = build.kernels.bind(rms_norm.ADD_OP, _problem(weights, build))

    def forward(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """hidden, residual: [T, hidden_size] -> norm of their sum, their sum"""
        return self.norm(hidden, residual)


def _problem(weights: Weights, build: BuildContext) -> rms_norm.RMSNormProblem:
    weight = weights["weight"].to(build.device, build.dtype)
    return rms_norm.RMSNormProblem(weight, build.norm.eps, build.norm.zero_centered)
