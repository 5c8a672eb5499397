"""The header of a GGUF file: metadata and where the tensors lie, no data. Torch-free.

The format is described in ggml's docs/gguf.md. We parse it ourselves, not with the gguf package,
because vocabularies make that take seconds and damage makes it fail in a hundred ways.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import gguf

from thalweg.errors import CheckpointError
from thalweg.models.source import StoredTensor, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Value type to its struct code."""
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 16
MAX_NBYTES = 1 << 28
MAX_ENTRIES = 1 << 23
"""Of a header's metadata and tensors. A large vocabulary takes 10 MB and a million entries; what a
damaged file claims ends here and not in gigabytes of memory."""


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
        self._entries_left = MAX_ENTRIES

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
        if self.position + num_bytes > MAX_NBYTES:
            raise self.damage(f"a header of more than {MAX_NBYTES} bytes")

    def expect(self, count: int, what: str, *, least_nbytes: int) -> None:
        """Refuses more than there can be."""
        self.require(count * least_nbytes)
        self._entries_left -= count
        if self._entries_left < 0:
            raise self.damage(f"{count} {what} at byte {self.position}")

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def string(self) -> str:
        return self.strings(1)[0]

    def name(self) -> str:
        """Of a key or tensor: fit to be printed."""
        name = self.string()
        if not name.isprintable():
            raise self.damage(f"the name {name[:40]!r}")
        return name

    def strings(self, count: int) -> list[str]:
        data, size, position = self._data, self.size, self.position
        found = []
        for _ in range(count):  # Hundreds of thousands of them: no call of ours in here.
            start = position + 8
            end = start + int.from_bytes(data[position:start], "little")
            if end > size or end > MAX_NBYTES:
                self.position = position
                self.take(8)
                self.require(end - start)
            try:
                found.append(data[start:end].decode())
            except UnicodeDecodeError as error:
                raise self.damage(f"no UTF-8 string at byte {position}") from error
            position = end
        self.position = position
        return found

    def value(self) -> Any:
        kind = self.number("I")
        return self.array() if kind == ARRAY else self.values(kind, 1)[0]

    def array(self) -> list[Any]:
        """Of scalars or strings: no file has arrays of arrays."""
        kind, count = self.number("I"), self.number("Q")
        return list(self.values(kind, count))

    def values(self, kind: int, count: int) -> Sequence[Any]:
        if kind == STRING:
            self.expect(count, "strings", least_nbytes=8)
            return self.strings(count)
        if kind not in SCALARS:
            raise self.damage(f"value type {kind} at byte {self.position}")
        code = SCALARS[kind]
        self.expect(count, "values", least_nbytes=struct.calcsize(f"<{code}"))
        return self.numbers(code, count)

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
    cursor.expect(num_values, "keys", least_nbytes=8 + 4 + 1)
    cursor.expect(num_tensors, "tensors", least_nbytes=8 + 4 + 8 + 4 + 8)
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = cursor.name()
        if key in metadata:
            raise cursor.damage(f"key {key} twice")
        metadata[key] = cursor.value()
    tensors: dict[str, StoredTensor] = {}
    for _ in range(num_tensors):
        name = cursor.name()
        if name in tensors:
            raise cursor.damage(f"tensor {name} twice")
        tensors[name] = _read_tensor(cursor, name)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT:
        raise cursor.damage(f"general.alignment = {alignment!r}")
    placed = _placed(cursor, tensors, alignment=alignment)
    _refuse_overlaps(cursor, placed)
    return GGUFHeader(metadata, placed)


def _read_tensor(cursor: _Cursor, name: str) -> StoredTensor:
    """With the offset as the file has it: from the start of the data."""
    num_dims = cursor.number("I")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.damage(f"tensor {name} has {num_dims} dimensions")
    shape = cursor.numbers("Q", num_dims)[::-1]
    if 0 in shape:
        raise cursor.damage(f"tensor {name} is empty: {list(shape)}")
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
    cursor: _Cursor, tensors: Mapping[str, StoredTensor], *, alignment: int
) -> dict[str, StoredTensor]:
    placed = {}
    for name, tensor in tensors.items():
        if tensor.offset % alignment:
            raise cursor.damage(f"tensor {name} is at offset {tensor.offset}, not aligned")
        start = -(-cursor.position // alignment) * alignment + tensor.offset
        end = start + tensor.info.nbytes
        if end > cursor.size:
            raise CheckpointError(
                f"{cursor.path} is truncated: {name} ends at byte {end} of {cursor.size}"
            )
        placed[name] = StoredTensor(tensor.info, cursor.path, start)
    return placed


def _refuse_overlaps(cursor: _Cursor, tensors: Mapping[str, StoredTensor]) -> None:
    ordered = sorted(tensors.items(), key=lambda item: item[1].offset)
    for (name, tensor), (other, follower) in pairwise(ordered):
        if tensor.offset + tensor.info.nbytes > follower.offset:
            raise cursor.damage(f"tensors {name} and {other} overlap")
