"""The header of a GGUF file: metadata and where the tensors lie, no data. Torch-free.

The format is described in ggml's docs/gguf.md. We parse it ourselves, not with the gguf package,
because vocabularies make that take seconds and damage makes it fail in a hundred ways.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import gguf

from thalweg.errors import CheckpointError
from thalweg.models.source import StoredTensor, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Value type to its struct code."""
MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    metadata: Mapping[str, Any]
    """Strings, numbers, bools and lists of them, by key."""
    tensors: Mapping[str, StoredTensor]
    """Shapes with the slowest dimension first, as in torch; the file has them the other way."""


def read_gguf_header(path: Path) -> GGUFHeader:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise CheckpointError(f"{path} is truncated or no GGUF file: {size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(_Cursor(path, data))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


class _Cursor:
    """A position in the file that cannot leave it."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.size = len(data)
        self.position = 0
        self._data = data

    def take(self, num_bytes: int) -> bytes:
        self.require(num_bytes)
        end = self.position + num_bytes
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def require(self, num_bytes: int) -> None:
        if self.position + num_bytes > self.size:
            raise CheckpointError(
                f"{self.path} is truncated or damaged: {num_bytes} bytes needed "
                f"at byte {self.position} of {self.size}"
            )

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def string(self) -> str:
        start = self.position
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError as error:
            raise self.damage(f"no UTF-8 string at byte {start}") from error

    def value(self) -> Any:
        kind = self.number("I")
        return self.array() if kind == ARRAY else self.scalars(kind, 1)[0]

    def array(self) -> list[Any]:
        return list(self.scalars(self.number("I"), self.number("Q")))

    def scalars(self, kind: int, count: int) -> tuple[Any, ...]:
        if kind == STRING:
            self.require(count * 8)  # A wild count ends here and not in a long loop.
            return tuple(self.string() for _ in range(count))
        if kind not in SCALARS:
            raise self.damage(f"value type {kind} at byte {self.position}")
        return self.numbers(SCALARS[kind], count)

    def damage(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged: {what}")


def _parse(cursor: _Cursor) -> GGUFHeader:
    if cursor.take(4) != b"GGUF":
        raise CheckpointError(f"{cursor.path} is no GGUF file")
    if (version := cursor.number("I")) not in VERSIONS:
        raise CheckpointError(
            f"{cursor.path} is GGUF version {version}: only 2 and 3 are supported"
        )
    num_tensors, num_values = cursor.numbers("Q", 2)
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = cursor.string()
        if key in metadata:
            raise cursor.damage(f"key {key} twice")
        metadata[key] = cursor.value()
    tensors: dict[str, StoredTensor] = {}
    for _ in range(num_tensors):
        name = cursor.string()
        if name in tensors:
            raise cursor.damage(f"tensor {name} twice")
        tensors[name] = _read_tensor(cursor, name)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise cursor.damage(f"general.alignment = {alignment!r}")
    data_start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(metadata, _placed(cursor, tensors, data_start=data_start))


def _read_tensor(cursor: _Cursor, name: str) -> StoredTensor:
    """With the offset as the file has it: from the start of the data."""
    num_dims = cursor.number("I")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.damage(f"tensor {name} has {num_dims} dimensions")
    shape = cursor.numbers("Q", num_dims)[::-1]
    kind, offset = cursor.number("I"), cursor.number("Q")
    try:
        ggml_type = gguf.GGMLQuantizationType(kind)
    except ValueError as error:
        raise CheckpointError(f"{cursor.path}: tensor {name} has unknown type {kind}") from error
    block_size, block_nbytes = gguf.GGML_QUANT_SIZES[ggml_type]
    if shape[-1] % block_size:
        raise cursor.damage(f"tensor {name} of {ggml_type.name} has rows of {shape[-1]}")
    info = TensorInfo(shape, ggml_type.name, prod(shape) // block_size * block_nbytes)
    return StoredTensor(info, cursor.path, offset)


def _placed(
    cursor: _Cursor, tensors: Mapping[str, StoredTensor], *, data_start: int
) -> dict[str, StoredTensor]:
    placed = {}
    for name, tensor in tensors.items():
        start = data_start + tensor.offset
        end = start + tensor.info.nbytes
        if end > cursor.size:
            raise CheckpointError(
                f"{cursor.path} is truncated: {name} ends at byte {end} of {cursor.size}"
            )
        placed[name] = StoredTensor(tensor.info, cursor.path, start)
    return placed
