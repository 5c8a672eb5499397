"""Rounds a checkpoint's matrices to fewer bits while they are read, and keeps account of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from thalweg.models.quantisation import Rounding, is_rounded
from thalweg.ops.linear.quantise import quantised
from thalweg.ops.weight import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from thalweg.ops.weight import Stored

CHUNK_ROWS = 4096


class Quantiser:
    """Stands between a reader of stored weights and the layers."""

    def __init__(self, read: Callable[[str], Stored], kind: str) -> None:
        self._read = read
        self._kind = kind
        self._squares: dict[str, tuple[float, float]] = {}
        """Of the differences and of the values, by name."""

    def read(self, name: str) -> Stored:
        stored = self._read(name)
        if not isinstance(stored, Tensor) or not is_rounded(name, tuple(stored.shape)):
            return stored
        blocks = quantised(stored, self._kind)
        self._squares[name] = _squares(blocks, stored)
        return blocks

    def rounding(self) -> Rounding:
        """Of all that was read."""
        errors = {name: _relative(*squares) for name, squares in self._squares.items()}
        worst = max(errors, key=errors.__getitem__)
        wrong, all_of_it = (sum(each) for each in zip(*self._squares.values(), strict=True))
        return Rounding(self._kind, len(errors), _relative(wrong, all_of_it), worst, errors[worst])


def _squares(blocks: Blocks, stored: Tensor) -> tuple[float, float]:
    rows = stored.reshape(-1, stored.shape[-1])
    data = blocks.data.reshape(len(rows), -1)
    wrong = total = 0.0
    for mine, given in zip(data.split(CHUNK_ROWS), rows.split(CHUNK_ROWS), strict=True):
        wide = given.float()
        wrong += float((Blocks(mine, blocks.type_name).dense() - wide).square().sum())
        total += float(wide.square().sum())
    return wrong, total


def _relative(wrong: float, total: float) -> float:
    return float((wrong / total) ** 0.5) if total else 0.0
