"""Carries recipes out: canonical weights from stored tensors."""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING

import torch

from thalweg.errors import CheckpointError
from thalweg.models.weight_map import Undo
from thalweg.ops.weight import concatenated, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from thalweg.models.binding import Binding
    from thalweg.models.source import TensorSource
    from thalweg.models.weight_map import Recipe
    from thalweg.ops.weight import Stored


class WeightReader:
    def __init__(
        self,
        source: TensorSource,
        binding: Binding,
        *,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._source = source
        self._binding = binding
        self._progress = progress
        self._unread = {name: info.nbytes for name, info in binding.used.items()}
        self._total = sum(self._unread.values())
        self._done = 0

    def read(self, name: str) -> Stored:
        bound = self._binding.weights[name]
        recipe = bound.recipe
        parts = [self._read_stored(source.name) for source in recipe.sources]
        stored = concatenated(parts)
        for dim, order in enumerate((recipe.rows, recipe.columns)):
            if order is not None:
                stored = stored.index_select(dim, torch.tensor(order()))
        if recipe.undo is not Undo.NOTHING:
            stored = _undo(values_of(stored), recipe)
        assert stored.numel() == prod(bound.spec.shape), name
        return stored.reshape(bound.spec.shape)

    def _read_stored(self, name: str) -> Stored:
        tensor = self._source.read(name)
        if self._progress and name in self._unread:
            self._done += self._unread.pop(name)
            self._progress(self._done, self._total)
        return tensor


def _undo(stored: Tensor, recipe: Recipe) -> Tensor:
    wide = stored.to(torch.promote_types(stored.dtype, torch.float32))
    if recipe.undo is Undo.ONE_ADDED:
        return wide - 1
    # Few values, and math.log is the same on every machine where torch's kernels are not.
    values = wide.flatten().tolist()
    if not all(value < 0 for value in values):
        raise CheckpointError(
            f"tensor {recipe.sources[0].name} is damaged: {recipe.undo.value} is negative"
        )
    return torch.tensor([math.log(-value) for value in values], dtype=wide.dtype)
