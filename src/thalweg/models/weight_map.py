"""How canonical weights are made of the tensors that files hold. Data only; torch-free.

Every layout met so far is the same three steps: concatenate some stored tensors along their rows,
take the rows in another order, reshape. So a recipe is data: headers suffice to check it, and a
test can run it backwards. `loader` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.models.plan import WeightSpec

if TYPE_CHECKING:
    from thalweg.models.plan import Shape


@dataclass(frozen=True, slots=True)
class Recipe:
    """`concatenate(sources)[rows].reshape(canonical shape)`"""

    sources: tuple[WeightSpec, ...]
    """By their names and shapes in the file."""
    rows: tuple[int, ...] | None = None
    """Rows of the concatenation in canonical order; None: all, as they are."""
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
