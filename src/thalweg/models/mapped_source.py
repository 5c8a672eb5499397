"""Reads tensors out of memory-mapped files, whatever format said where they lie."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING
from weakref import finalize

import torch

from thalweg.ops.dequantize import BLOCK_TYPES
from thalweg.ops.weight import Blocks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from thalweg.models.source import StoredTensor, TensorInfo
    from thalweg.ops.weight import Stored

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


LARGE = 1 << 20
"""Bytes of a tensor whose pages are given back when nobody holds it any more."""


class MappedSource:
    """A `TensorSource` over the files that `tensors` points into.

    Files are mapped when first needed, for as long as the source or a tensor of it lives. The
    mapping is private: a write to a tensor never reaches the file, and is lost with the tensor.
    """

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = tensors
        self._entries = {name: tensor.info for name, tensor in tensors.items()}
        self._files: dict[Path, mmap.mmap] = {}

    def entries(self) -> Mapping[str, TensorInfo]:
        return self._entries

    def read(self, name: str) -> Stored:
        """See `TensorSource`; the dtype must be one of `READABLE`."""
        tensor = self._tensors[name]
        info = tensor.info
        if (kind := BLOCK_TYPES.get(info.dtype_name)) is None:
            return self._view(tensor, DTYPES[info.dtype_name]).reshape(info.shape)
        *rows, width = info.shape
        data = self._view(tensor, torch.uint8)
        blocks = data.reshape(*rows, width // kind.num_values * kind.nbytes)
        return Blocks(blocks, info.dtype_name)

    def _view(self, tensor: StoredTensor, dtype: torch.dtype) -> Tensor:
        start, nbytes = tensor.offset, tensor.info.nbytes
        if nbytes == 0:
            return torch.empty(0, dtype=dtype)
        mapped = self._mapped(tensor.path)
        if start % dtype.itemsize:  # Possible in safetensors, though no writer does it.
            return torch.frombuffer(bytearray(mapped[start : start + nbytes]), dtype=dtype)
        view = memoryview(mapped)[start : start + nbytes]
        if nbytes >= LARGE:
            finalize(view, _forget, mapped, start, nbytes).atexit = False
        return torch.frombuffer(view, dtype=dtype)

    def _mapped(self, path: Path) -> mmap.mmap:
        if path not in self._files:
            with path.open("rb") as file:
                self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._files[path]


def _forget(mapped: mmap.mmap, start: int, nbytes: int) -> None:
    """Take pages that were read out of the process; they come again if somebody reads them."""
    if hasattr(mmap, "MADV_DONTNEED"):  # not on every system
        page = start // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, page, start + nbytes - page)
