"""Where a checkpoint's tensors lie, whatever the format. Torch-free: `mapped_source` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from thalweg.ops.weight import Stored


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

    def read(self, name: str) -> Stored:
        """The tensor, as it is stored: quantised ones in their blocks.

        It may be a view of the mapped file: copy before writing to it.
        """
        ...


PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
PACKED_AS = {
    "Q4_0": "q4",
    "Q4_1": "q4m",
    "Q5_0": "q8",
    "Q5_1": "q5k",
    "Q8_0": "q8",
    "Q4_K": "q4k",
    "Q5_K": "q5k",
    "Q6_K": "q6k",
}
"""The format the compiled kernels keep quantised values in: each as it is, none rounded."""
WIDENED = frozenset({"Q5_0", "Q5_1", "Q5_K", "Q6_K"})
"""Whose codes of 5 or 6 bits take a byte there."""
QUANTIZED = frozenset(PACKED_AS)
READABLE = PLAIN | QUANTIZED
"""The `dtype_name`s that `TensorSource.read` takes."""
