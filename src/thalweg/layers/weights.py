"""How a layer gets its tensors: by the checkpoint's names, relative to where the layer sits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.ops.weight import values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from thalweg.ops.weight import Stored


@dataclass(frozen=True, slots=True)
class Weights:
    """A view of a checkpoint below `prefix`."""

    read: Callable[[str], Stored]
    prefix: str = ""

    def __getitem__(self, name: str) -> Tensor:
        """In the dtype the checkpoint stores, quantised ones as float32."""
        return values_of(self.stored(name))

    def stored(self, name: str) -> Stored:
        """As the checkpoint has it: quantised ones in their blocks."""
        return self.read(self.prefix + name)

    def scope(self, name: str) -> Weights:
        return Weights(self.read, f"{self.prefix}{name}.")
