"""Reads tensors out of memory-mapped files, whatever format said where they lie."""

from __future__ import annotations

import mmap
from math import prod
from typing import TYPE_CHECKING

import torch

from thalweg.models.dequantize import BLOCK_TYPES, dequantize
from thalweg.models.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from thalweg.models.source import StoredTensor, TensorInfo

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class MappedSource:
    """A `TensorSource` over the files that `tensors` points into.

    Files are mapped when first needed, for as long as the source or a tensor of it lives. The
    mapping is private: a write to a tensor never reaches the file.
    """

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = tensors
        self._entries = {name: tensor.info for name, tensor in tensors.items()}
        self._files: dict[Path, mmap.mmap] = {}
        self._scratch = Scratch()

    def entries(self) -> Mapping[str, TensorInfo]:
        return self._entries

    def read(self, name: str) -> Tensor:
        """See `TensorSource`; the dtype must be one of `READABLE`."""
        tensor = self._tensors[name]
        info = tensor.info
        if info.dtype_name in BLOCK_TYPES:
            blocks = self._view(tensor, torch.uint8, count=info.nbytes).numpy()
            values = self._scratch.take(prod(info.shape))
            kind, num_threads = BLOCK_TYPES[info.dtype_name], torch.get_num_threads()
            dequantize(blocks, kind, out=values, num_threads=num_threads)
            return torch.from_numpy(values).reshape(info.shape)
        return self._view(tensor, DTYPES[info.dtype_name], count=prod(info.shape)).reshape(
            info.shape
        )

    def _view(self, tensor: StoredTensor, dtype: torch.dtype, *, count: int) -> Tensor:
        if count == 0:
            return torch.empty(0, dtype=dtype)
        mapped = self._mapped(tensor.path)
        if tensor.offset % dtype.itemsize:  # Possible in safetensors, though no writer does it.
            end = tensor.offset + tensor.info.nbytes
            return torch.frombuffer(bytearray(mapped[tensor.offset : end]), dtype=dtype)
        return torch.frombuffer(mapped, dtype=dtype, count=count, offset=tensor.offset)

    def _mapped(self, path: Path) -> mmap.mmap:
        if path not in self._files:
            with path.open("rb") as file:
                self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._files[path]
