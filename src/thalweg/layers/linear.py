"""Projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops import linear
from thalweg.ops.weight import Matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.batch import ForwardBatch
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights
    from thalweg.ops.weight import Stored


class Linear:
    """One or more projections of the same input, computed as one: the outputs follow each other."""

    def __init__(
        self, names: Sequence[str], weights: Weights, build: BuildContext, *, bias: bool = False
    ) -> None:
        weight = matrix([weights.stored(f"{name}.weight") for name in names], build)
        offset = matrix([weights[f"{name}.bias"] for name in names], build).dense if bias else None
        self.out_features, self.in_features = weight.shape
        self.product = build.kernels.bind(linear.OP, linear.LinearProblem(weight, offset))

    def __call__(self, x: Tensor, batch: ForwardBatch) -> Tensor:
        """x: [T, in_features] -> [T, out_features]"""
        return self.product(x)


def matrix(parts: Sequence[Stored], build: BuildContext) -> Matrix:
    """The parts' rows one after the other; the parts may differ in type."""
    return Matrix(tuple(parts), build.dtype, torch.device(build.device))
