"""Headers of safetensors files, single or sharded: names, shapes and places, no data. Torch-free.

The format is a little-endian u64 header length, a JSON object name -> {dtype, shape, data_offsets},
and the data. Everything the header says is checked against the file, so that reading cannot fail.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from thalweg.errors import CheckpointError
from thalweg.models.hf_fields import read_json_object
from thalweg.models.source import StoredTensor, TensorInfo

if TYPE_CHECKING:
    from pathlib import Path

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

TYPES_BY_BITS = {
    64: ("F64", "I64", "U64", "C64"),
    32: ("F32", "I32", "U32"),
    16: ("F16", "BF16", "I16", "U16"),
    8: ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"),
    6: ("F6_E2M3", "F6_E3M2"),
    4: ("F4",),
}
BITS = {name: bits for bits, names in TYPES_BY_BITS.items() for name in names}
"""All that the format has. Those we cannot read are refused where one is needed."""


def find_tensors(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of the checkpoint in `directory`, in file order."""
    if (directory / SINGLE).is_file():
        return read_header(directory / SINGLE)
    if not (directory / INDEX).is_file():
        found = sorted(p.name for p in directory.iterdir() if p.suffix in (".bin", ".pth", ".gguf"))
        hint = f" (found {', '.join(found[:3])})" if found else ""
        raise CheckpointError(f"{directory} has neither {SINGLE} nor {INDEX}{hint}")
    return _read_shards(directory)


def read_header(path: Path) -> dict[str, StoredTensor]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if 8 + length <= size else b""
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if size < 8 or 8 + length > size:
        raise CheckpointError(f"{path} is truncated or no safetensors file: {size} bytes")
    data_start = 8 + length
    tensors = {
        name: _stored_tensor(path, name, entry=entry, data_start=data_start)
        for name, entry in _parse(path, header).items()
        if name != "__metadata__"
    }
    end = max((t.offset + t.info.nbytes for t in tensors.values()), default=data_start)
    if end > size:
        name = next(name for name, t in tensors.items() if t.offset + t.info.nbytes > size)
        raise CheckpointError(f"{path} is truncated: {name} ends at byte {end} of {size}")
    return tensors


def _read_shards(directory: Path) -> dict[str, StoredTensor]:
    path = directory / INDEX
    where = read_json_object(path).get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(v, str) for v in where.values()):
        raise CheckpointError(f"{path} has no weight_map of tensor names to file names")
    shards = sorted(set(where.values()))
    if missing := [shard for shard in shards if not (directory / shard).is_file()]:
        raise CheckpointError(f"{path} names {len(missing)} missing files: {_few(missing)}")
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        found = read_header(directory / shard)
        if twice := sorted(found.keys() & tensors.keys()):
            raise CheckpointError(f"{directory / shard} repeats tensors of another: {_few(twice)}")
        tensors |= found
    if absent := sorted(name for name in where if name not in tensors):
        raise CheckpointError(f"{path} names {len(absent)} tensors no shard has: {_few(absent)}")
    return tensors


def _parse(path: Path, header: bytes) -> dict[str, Any]:
    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [name for name, _ in pairs]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise CheckpointError(f"{path} has a tensor twice: {_few(twice)}")
        return result

    try:
        entries = json.loads(header, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} has a damaged header: {error}") from error
    if not isinstance(entries, dict):
        raise CheckpointError(f"{path} has a damaged header: it is no JSON object")
    return entries


def _stored_tensor(path: Path, name: str, *, entry: Any, data_start: int) -> StoredTensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            all(isinstance(n, int) and n >= 0 for n in shape) and 0 <= start <= end
        ):
            if dtype in BITS and 8 * (end - start) == prod(shape) * BITS[dtype]:
                info = TensorInfo(tuple(shape), dtype, end - start)
                return StoredTensor(info, path, data_start + start)
    raise CheckpointError(f"{path} has a damaged header: tensor {name} is {json.dumps(entry)[:80]}")


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
