"""GGUF files in parts are as the whole; what is wrong with parts is said by name."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import gguf
import pytest
import torch

from checkpoints import make_checkpoint
from gguf_files import convert, write_gguf
from thalweg.errors import CheckpointError
from thalweg.models.loader import TokenizerMetadata, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND, THIRD = (f"tiny-{i:05}-of-00003.gguf" for i in (1, 2, 3))


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """39 tensors in three files."""
    make_checkpoint(tmp_path / "hf", "llama")
    write_gguf(tmp_path / "tiny.gguf", tmp_path / "hf", part_size=15)
    assert sorted(p.name for p in tmp_path.glob("*.gguf")) == [FIRST, SECOND, THIRD]
    return tmp_path


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_parts_are_read_as_one(parts: Path) -> None:
    opened, original = open_checkpoint(parts / FIRST), open_checkpoint(parts / "hf")
    weights, wanted = opened.weights(), original.weights()
    assert opened.report.num_tensors == 39
    for spec in original.plan.weights:
        assert torch.equal(weights[spec.name], wanted[spec.name]), spec.name
    assert isinstance(opened.tokenizer, TokenizerMetadata)
    assert len(opened.tokenizer.values["tokenizer.ggml.tokens"]) == 512


def test_parts_of_the_converter(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "hf", "qwen3")
    convert(tmp_path / "tiny.gguf", made.path, "--split-max-tensors", "20")
    (first,) = tmp_path.glob("tiny-00001-of-*.gguf")
    weights, wanted = open_checkpoint(first).weights(), open_checkpoint(made.path).weights()
    for spec in open_checkpoint(made.path).plan.weights:
        assert torch.equal(weights[spec.name], wanted[spec.name]), spec.name


def test_one_part_of_one_is_a_whole_file(parts: Path) -> None:
    write_gguf(parts / "whole.gguf", parts / "hf", part_size=100)
    (path,) = parts.glob("whole*.gguf")
    assert open_checkpoint(path).report.num_tensors == 39


def test_missing_parts_are_named(parts: Path) -> None:
    (parts / SECOND).unlink()
    assert f"lacks 1 of its 3 parts: {SECOND}" in refusal(parts / FIRST)
    (parts / THIRD).unlink()
    assert f"lacks 2 of its 3 parts: {SECOND}, {THIRD}" in refusal(parts / FIRST)


def test_a_later_part_names_the_first(parts: Path) -> None:
    assert f"a later part of a split file: name {FIRST}" in refusal(parts / SECOND)


def test_a_part_under_another_name(parts: Path) -> None:
    (parts / FIRST).rename(parts / "model.gguf")
    assert "its name must end in -00001-of-00003.gguf" in refusal(parts / "model.gguf")


def test_exchanged_parts(parts: Path) -> None:
    shutil.copy(parts / THIRD, parts / SECOND)
    message = refusal(parts / FIRST)
    assert SECOND in message and "split.*: no = 2 is not supported: 1, as" in message


def test_a_part_of_another_file(parts: Path) -> None:
    write_gguf(parts / "other.gguf", parts / "hf", part_size=8)
    shutil.copy(parts / "other-00002-of-00005.gguf", parts / SECOND)
    assert "split.*: count = 5 is not supported: only 3" in refusal(parts / FIRST)
    write_gguf(parts / "other.gguf", parts / "hf", part_size=14)
    shutil.copy(parts / "other-00002-of-00003.gguf", parts / SECOND)
    assert f"{SECOND} repeats blk." in refusal(parts / FIRST)


def test_a_damaged_part_is_named(parts: Path) -> None:
    whole = (parts / THIRD).read_bytes()
    (parts / THIRD).write_bytes(whole[:-1])
    assert THIRD in refusal(parts / FIRST)
    (parts / THIRD).write_bytes(b"")
    assert f"{THIRD} is truncated" in refusal(parts / FIRST)


def test_tensors_that_are_not_in_any_part(parts: Path) -> None:
    whole = (parts / FIRST).read_bytes()
    key = b"split.tensors.count"
    at = whole.index(key) + len(key) + 4
    (parts / FIRST).write_bytes(whole[:at] + (40).to_bytes(4, "little") + whole[at + 4 :])
    assert "have 39 tensors, but split.tensors.count = 40" in refusal(parts / FIRST)


def test_the_gguf_package_agrees_on_the_parts(parts: Path) -> None:
    """What is tested here is what others write."""
    numbers = [
        gguf.GGUFReader(parts / name).fields["split.no"].contents()
        for name in (FIRST, SECOND, THIRD)
    ]
    assert numbers == [0, 1, 2]
