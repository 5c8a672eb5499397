"""The norms around and inside a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops import rms_norm

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights


class RMSNorm:
    """The model's RMS norm over the last axis."""

    def __init__(self, weights: Weights, build: BuildContext) -> None:
        self.norm = build.kernels.bind(rms_norm.OP, _problem(weights, build))

    def __call__(self, x: Tensor) -> Tensor:
        return self.norm(x)


class AddRMSNorm:
    """Add to the residual stream, and normalise what it is now."""

    def __init__(self, weights: Weights, build: BuildContext) -> None:
        self.norm = build.kernels.bind(rms_norm.ADD_OP, _problem(weights, build))

    def __call__(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """hidden, residual: [T, hidden_size] -> norm of their sum, their sum"""
        return self.norm(hidden, residual)


def _problem(weights: Weights, build: BuildContext) -> rms_norm.RMSNormProblem:
    weight = weights["weight"].to(build.device, build.dtype)
    return rms_norm.RMSNormProblem(weight, build.norm.eps, build.norm.zero_centered)
