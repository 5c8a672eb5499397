"""How a layer gets its tensors: by the checkpoint's names, relative to where the layer sits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """A view of a checkpoint below `prefix`. Tensors come in the dtype the checkpoint stores."""

    read: Callable[[str], Tensor]
    prefix: str = ""

    def __getitem__(self, name: str) -> Tensor:
        return self.read(self.prefix + name)

    def scope(self, name: str) -> Weights:
        return Weights(self.read, f"{self.prefix}{name}.")
