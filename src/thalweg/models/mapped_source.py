"""Reads tensors out of memory-mapped files, whatever format said where they lie."""

from __future__ import annotations

import mmap
from math import prod
from typing import TYPE_CHECKING

import gguf
import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from thalweg.models.source import StoredTensor, TensorInfo

PLAIN = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
QUANTIZED = {
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
    "Q4_1": gguf.GGMLQuantizationType.Q4_1,
}
"""Become float32 when read."""


class MappedSource:
    """A `TensorSource` over the files that `tensors` points into.

    Files are mapped when first needed, for as long as the source or a tensor of it lives. The
    mapping is private: a write to a tensor never reaches the file.
    """

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = tensors
        self._entries = {name: tensor.info for name, tensor in tensors.items()}
        self._files: dict[Path, mmap.mmap] = {}

    def entries(self) -> Mapping[str, TensorInfo]:
        return self._entries

    def read(self, name: str) -> Tensor:
        """See `TensorSource`; the dtype must be one of `READABLE`."""
        tensor = self._tensors[name]
        info = tensor.info
        if info.nbytes == 0:
            return torch.empty(info.shape, dtype=PLAIN[info.dtype_name])
        if info.dtype_name in QUANTIZED:
            return self._dequantize(tensor)
        dtype = PLAIN[info.dtype_name]
        if tensor.offset % dtype.itemsize:  # Possible in safetensors, though no writer does it.
            flat = torch.frombuffer(bytearray(self._bytes(tensor)), dtype=dtype)
        else:
            flat = torch.frombuffer(
                self._mapped(tensor.path), dtype=dtype, count=prod(info.shape), offset=tensor.offset
            )
        return flat.reshape(info.shape)

    def _dequantize(self, tensor: StoredTensor) -> Tensor:
        info = tensor.info
        rows = np.frombuffer(self._bytes(tensor), np.uint8).reshape(*info.shape[:-1], -1)
        values = gguf.dequantize(rows, QUANTIZED[info.dtype_name])
        return torch.from_numpy(values).reshape(info.shape)

    def _bytes(self, tensor: StoredTensor) -> memoryview:
        mapped = memoryview(self._mapped(tensor.path))
        return mapped[tensor.offset : tensor.offset + tensor.info.nbytes]

    def _mapped(self, path: Path) -> mmap.mmap:
        if path not in self._files:
            with path.open("rb") as file:
                self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._files[path]
