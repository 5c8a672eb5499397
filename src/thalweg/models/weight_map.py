"""How canonical weights are made of the tensors that files hold. Data only; torch-free.

Every layout met so far is the same few steps: concatenate some stored tensors along their rows,
take rows or columns in another order, undo a function of each value, reshape. So a recipe is data:
headers suffice to check it, and a test can run it backwards. `weight_reader` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from thalweg.models.plan import WeightSpec

if TYPE_CHECKING:
    from thalweg.models.plan import Shape

Order = Callable[[], tuple[int, ...]]
"""Stored positions in canonical order. Called once the shapes are known to be right: until then a
damaged file may claim any number of them."""


class Undo(Enum):
    """What the file has in place of a value x."""

    NOTHING = "x"
    ONE_ADDED = "1 + x"
    NEGATED_EXP = "-exp(x)"


@dataclass(frozen=True, slots=True)
class Recipe:
    """`undo(concatenate(sources)[rows][:, columns]).reshape(canonical shape)`"""

    sources: tuple[WeightSpec, ...]
    """By their names and shapes in the file."""
    rows: Order | None = None
    """Rows of the concatenation; None: all, as they are."""
    columns: Order | None = None
    undo: Undo = Undo.NOTHING
    change: str = ""
    """What the load report says was done; empty for a tensor that is taken as it is."""

    @classmethod
    def plain(cls, name: str, shape: Shape) -> Recipe:
        return cls((WeightSpec(name, shape),))


class WeightMap(Protocol):
    """One way of naming and laying out weights, e.g. Hugging Face's for one architecture."""

    def recipes(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        """The layouts a file may use for a canonical weight, the preferred one first."""
        ...

    def skip_reason(self, name: str) -> str | None:
        """Why a stored tensor is rightly left out; None for one that must be used."""
        ...
