"""Where a checkpoint's tensors lie, whatever the format. Torch-free: `mapped_source` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorInfo:
    shape: tuple[int, ...]
    dtype_name: str
    """As the format spells it: BF16, F8_E4M3, Q4_1, ..."""
    nbytes: int
    """In the file."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    info: TensorInfo
    path: Path
    offset: int
    """Of the first byte in the file."""


class TensorSource(Protocol):
    def entries(self) -> Mapping[str, TensorInfo]:
        """Every tensor by the name its file gives it. Reads no data."""
        ...

    def read(self, name: str) -> Tensor:
        """The tensor, in the dtype it is stored in, quantised ones as float32.

        It may be a view of the mapped file: copy before writing to it.
        """
        ...


PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
QUANTIZED = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
READABLE = PLAIN | QUANTIZED
"""The `dtype_name`s that `TensorSource.read` takes."""
