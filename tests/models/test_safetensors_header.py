"""Damaged safetensors files and directories: one line that says what is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from checkpoints import Variant, make_checkpoint
from thalweg.errors import CheckpointError
from thalweg.models.loader import open_checkpoint
from thalweg.models.mapped_source import MappedSource
from thalweg.models.safetensors_header import find_tensors, read_header
from thalweg.ops.weight import values_of

if TYPE_CHECKING:
    from pathlib import Path


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        find_tensors(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_header_and_data_are_as_the_library_reads_them(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).to(torch.bfloat16),
        "c": torch.randn(2, 1, 4).half(),
        "d": torch.randn(4, 2, dtype=torch.float64),
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 4),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    found = read_header(path)
    with safe_open(path, framework="pt") as file:
        assert found.keys() == set(file.keys())
        for name, stored in found.items():
            part = file.get_slice(name)
            assert stored.info.shape == tuple(part.get_shape())
            assert stored.info.dtype_name == part.get_dtype()
    source = MappedSource(found)
    for name, tensor in tensors.items():
        assert torch.equal(values_of(source.read(name)), tensor)
        assert source.read(name).dtype == tensor.dtype


def test_data_at_odd_addresses_is_read(tmp_path: Path) -> None:
    values = torch.randn(6)
    header = json.dumps({"x": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}).encode()
    for padding in range(4):
        path = write(tmp_path / "odd", header + b" " * padding, values.numpy().tobytes())
        assert torch.equal(values_of(MappedSource(read_header(path)).read("x")), values)


@pytest.mark.parametrize("keep", [0, 7, 8, 100, 0.3, 0.9, -1])
def test_truncated_files(tmp_path: Path, keep: float) -> None:
    make_checkpoint(tmp_path, "llama")
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    cut = int(keep * len(whole)) if 0 < keep < 1 else int(keep)
    path.write_bytes(whole[:cut])
    assert "truncated" in refusal(tmp_path)
    with pytest.raises(CheckpointError, match="truncated"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "Q8_0", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [0, 4]},
        {"dtype": 7, "shape": [1], "data_offsets": [0, 4]},
        "F32",
    ],
)
def test_headers_that_contradict_themselves(tmp_path: Path, entry: Any) -> None:
    write(tmp_path / "model.safetensors", {"__metadata__": {}, "x": entry}, b"\0" * 8)
    assert "damaged header: tensor x is" in refusal(tmp_path)


@pytest.mark.parametrize("header", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_headers_that_are_no_json_object(tmp_path: Path, header: bytes) -> None:
    write(tmp_path / "model.safetensors", header)
    assert "damaged header" in refusal(tmp_path)


def test_one_name_twice_in_a_file(tmp_path: Path) -> None:
    entry = json.dumps({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})
    write(tmp_path / "model.safetensors", f'{{"x": {entry}, "x": {entry}}}'.encode(), b"\0" * 4)
    assert "has a tensor twice: x" in refusal(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama", Variant(sharded=True))
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    assert f"names 1 missing files: {shard.name}" in refusal(tmp_path)


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama", Variant(sharded=True))
    first, second = sorted(tmp_path.glob("*.safetensors"))[:2]
    second.write_bytes(first.read_bytes())
    assert f"{second.name} repeats tensors of another" in refusal(tmp_path)


def test_a_tensor_that_only_the_index_has(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama", Variant(sharded=True))
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.ghost"] = next(iter(content["weight_map"].values()))
    index.write_text(json.dumps(content))
    assert "names 1 tensors no shard has: model.ghost" in refusal(tmp_path)
    index.write_text("{}")
    assert "has no weight_map" in refusal(tmp_path)
    index.write_text("{")
    assert "is not JSON" in refusal(tmp_path)


def test_a_directory_without_safetensors(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "(found pytorch_model.bin)" in refusal(tmp_path)
