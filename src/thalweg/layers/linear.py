"""Projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops import linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.batch import ForwardBatch
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights


class Linear:
    """One or more projections of the same input, computed as one: the outputs follow each other."""

    def __init__(
        self, names: Sequence[str], weights: Weights, build: BuildContext, *, bias: bool = False
    ) -> None:
        weight = joined([weights[f"{name}.weight"] for name in names], build)
        offset = joined([weights[f"{name}.bias"] for name in names], build) if bias else None
        self.out_features, self.in_features = weight.shape
        self.product = build.kernels.bind(linear.OP, linear.LinearProblem(weight, offset))

    def __call__(self, x: Tensor, batch: ForwardBatch) -> Tensor:
        """x: [T, in_features] -> [T, out_features]"""
        return self.product(x)


def joined(parts: Sequence[Tensor], build: BuildContext) -> Tensor:
    """The parts' rows one after the other, in the model's dtype; the parts may differ in theirs.

    A single part that needs no change is not copied: it may lie in the checkpoint's mapped file.
    """
    whole = [part.to(build.device, build.dtype) for part in parts]
    return whole[0] if len(whole) == 1 else torch.cat(whole)
