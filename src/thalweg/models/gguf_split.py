"""GGUF files in parts, `name-00001-of-00003.gguf` and so on, seen as one. Torch-free.

The first part has the metadata, each part the headers of its own tensors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from thalweg.errors import CheckpointError
from thalweg.models.gguf_header import GGUFHeader, read_gguf_header
from thalweg.models.hf_fields import Fields

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.models.source import StoredTensor

PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def read_gguf(path: Path) -> GGUFHeader:
    """Of a whole file, or of all parts of one of which `path` is the first.

    Raises `CheckpointError` that names missing, exchanged and contradictory parts.
    """
    header = read_gguf_header(path)
    split = _split_fields(path, header)
    count = split.integer("count", 1, least=0)
    if count <= 1:
        return header
    paths = _part_paths(path, count)
    headers = [header, *map(read_gguf_header, paths[1:])]
    tensors: dict[str, StoredTensor] = {}
    for i, (part_path, part) in enumerate(zip(paths, headers, strict=True)):
        _refuse_other_part(part_path, part, index=i, count=count)
        if twice := sorted(part.tensors.keys() & tensors.keys()):
            raise CheckpointError(f"{part_path} repeats {twice[0]} of an earlier part")
        tensors |= part.tensors
    num_tensors = split.integer("tensors.count", len(tensors))
    if num_tensors != len(tensors):
        raise CheckpointError(
            f"{path} and its other parts have {len(tensors)} tensors, "
            f"but split.tensors.count = {num_tensors}"
        )
    return GGUFHeader(header.metadata, tensors)


def _split_fields(path: Path, header: GGUFHeader) -> Fields:
    values = {k[6:]: v for k, v in header.metadata.items() if k.startswith("split.")}
    return Fields(values, f"{path}: GGUF metadata split.*")


def _part_paths(path: Path, count: int) -> list[Path]:
    name = PART_NAME.fullmatch(path.name)
    if not name or int(name["count"]) != count:
        raise CheckpointError(
            f"{path} is a part of {count}: its name must end in -00001-of-{count:05}.gguf"
        )
    paths = [
        path.with_name(f"{name['stem']}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)
    ]
    if path != paths[0]:
        raise CheckpointError(f"{path} is a later part of a split file: name {paths[0].name}")
    if missing := [part.name for part in paths if not part.is_file()]:
        few = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise CheckpointError(f"{path} lacks {len(missing)} of its {count} parts: {few}")
    return paths


def _refuse_other_part(path: Path, header: GGUFHeader, *, index: int, count: int) -> None:
    split = _split_fields(path, header)
    split.only("count", count)
    if split.integer("no", least=0) != index:
        raise split.error("no", f"{index}, as the file's name says")
