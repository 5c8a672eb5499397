"""Files damaged on purpose: one line each that says what is wrong, and little memory."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from checkpoints import Variant, make_checkpoint
from gguf_files import write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTES = 400
OPEN_EACH = Path(__file__).parent.parent / "open_each.py"
HUGE = (1 << 62).to_bytes(8, "little")
U32 = (1 << 32) - 1


class File:
    """The bytes of a file, and where things are in it."""

    def __init__(self, path: Path) -> None:
        self.whole = path.read_bytes()
        self.data = {t.name: t.data_offset for t in gguf.GGUFReader(path).tensors}

    def put(self, at: int, new: bytes) -> bytes:
        return self.whole[:at] + new + self.whole[at + len(new) :]

    def value(self, key: str) -> int:
        """Where the value of a key is, after its type."""
        return self.whole.index(text(key)) + 8 + len(key) + 4

    def tensor(self, name: str) -> int:
        """Where the number of dimensions of a tensor is."""
        return self.whole.index(text(name)) + 8 + len(name)

    def set_u32(self, key: str, value: int) -> bytes:
        return self.put(self.value(key), u32(value))

    def set_f32(self, key: str, value: float) -> bytes:
        return self.put(self.value(key), struct.pack("<f", value))


def text(string: str) -> bytes:
    return len(string).to_bytes(8, "little") + string.encode()


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


FIRST_KEY = 24
MATRIX = "blk.0.attn_qkv.weight"  # two dimensions: type 20 and offset 24 bytes after their number
TOKENS = "tokenizer.ggml.tokens"


def cut(where: Callable[[File], int]) -> Callable[[File], bytes]:
    return lambda f: f.whole[: where(f)]


CUTS: dict[str, Callable[[File], bytes]] = {
    "to nothing": cut(lambda f: 0),
    "in the magic": cut(lambda f: 3),
    "after the magic": cut(lambda f: 4),
    "in the counts": cut(lambda f: 20),
    "after the counts": cut(lambda f: 24),
    "in the first key": cut(lambda f: FIRST_KEY + 12),
    "before a value": cut(lambda f: f.value("qwen35.block_count")),
    "in an array": cut(lambda f: f.value(TOKENS) + 200),
    "in a string of an array": cut(lambda f: f.value(TOKENS) + 12 + 9),
    "before the tensors": cut(lambda f: f.tensor("token_embd.weight") - 26),
    "in a tensor's name": cut(lambda f: f.tensor(MATRIX) - 3),
    "in a tensor's shape": cut(lambda f: f.tensor(MATRIX) + 7),
    "before the data": cut(lambda f: f.tensor("blk.4.nextn.shared_head_norm.weight") + 24),
    "in the data": cut(lambda f: len(f.whole) // 2),
    "before the last byte": cut(lambda f: len(f.whole) - 33),
}
HEADER: dict[str, Callable[[File], bytes]] = {
    "magic": lambda f: f.put(0, b"GGUX"),
    "version 1": lambda f: f.put(4, u32(1)),
    "version of the other byte order": lambda f: f.put(4, b"\0\0\0\3"),
    "one tensor more": lambda f: f.put(8, u64(f.whole[8] + 1)),
    "one tensor less": lambda f: f.put(8, u64(f.whole[8] - 1)),
    "no tensors": lambda f: f.put(8, u64(0)),
    "very many tensors": lambda f: f.put(8, HUGE),
    "many tensors": lambda f: f.put(8, u64(5000)),
    "one key more": lambda f: f.put(16, u64(f.whole[16] + 1)),
    "one key less": lambda f: f.put(16, u64(f.whole[16] - 1)),
    "very many keys": lambda f: f.put(16, HUGE),
    "all ones": lambda f: f.put(8, b"\xff" * 16),
    "very long key": lambda f: f.put(FIRST_KEY, HUGE),
    "key as long as the file": lambda f: f.put(FIRST_KEY, u64(len(f.whole) - FIRST_KEY - 8)),
    "very long string": lambda f: f.put(f.value("general.architecture"), HUGE),
    "very long array": lambda f: f.put(f.value(TOKENS) + 4, HUGE),
    "array as long as the file": lambda f: f.put(f.value(TOKENS) + 4, u64(len(f.whole) // 8)),
    "array of arrays": lambda f: f.put(f.value(TOKENS), u32(9)),
    "array of unknown things": lambda f: f.put(f.value(TOKENS), u32(77)),
    "array of numbers": lambda f: f.put(f.value(TOKENS), u32(4)),
    "very long string of an array": lambda f: f.put(f.value(TOKENS) + 12, HUGE),
    "unknown type of a value": lambda f: f.put(f.value("qwen35.block_count") - 4, u32(13)),
    "array in place of a number": lambda f: f.put(f.value("qwen35.block_count") - 4, u32(9)),
    "key of two lines": lambda f: f.put(FIRST_KEY + 10, b"\n"),
    "key that is no text": lambda f: f.put(FIRST_KEY + 10, b"\xff\xfe"),
    "key twice": lambda f: f.whole.replace(b"qwen35.ssm.state_size", b"qwen35.ssm.inner_size"),
}
TENSORS: dict[str, Callable[[File], bytes]] = {
    "no dimensions": lambda f: f.put(f.tensor(MATRIX), u32(0)),
    "five dimensions": lambda f: f.put(f.tensor(MATRIX), u32(5)),
    "very many dimensions": lambda f: f.put(f.tensor(MATRIX), u32(U32)),
    "empty": lambda f: f.put(f.tensor(MATRIX) + 4, u64(0)),
    "very wide": lambda f: f.put(f.tensor(MATRIX) + 4, HUGE),
    "very wide and empty": lambda f: f.put(f.tensor(MATRIX) + 4, HUGE + u64(0)),
    "one column more": lambda f: f.put(f.tensor(MATRIX) + 4, u64(65)),
    "transposed": lambda f: f.put(f.tensor(MATRIX) + 4, u64(160) + u64(64)),
    "unknown type": lambda f: f.put(f.tensor(MATRIX) + 20, u32(999)),
    "type that was given up": lambda f: f.put(f.tensor(MATRIX) + 20, u32(4)),
    "type that is not for models": lambda f: f.put(f.tensor(MATRIX) + 20, u32(24)),
    "very far offset": lambda f: f.put(f.tensor(MATRIX) + 24, HUGE),
    "negative offset": lambda f: f.put(f.tensor(MATRIX) + 24, b"\xff" * 8),
    "odd offset": lambda f: f.put(f.tensor(MATRIX) + 24, u64(33)),
    "offset of another tensor": lambda f: f.put(f.tensor(MATRIX) + 24, u64(0)),
    "name that is no text": lambda f: f.put(f.tensor(MATRIX) - 2, b"\xc3("),
    "name of another tensor": lambda f: f.put(f.tensor(MATRIX) - len(MATRIX), b"blk.1"),
    "name of two lines": lambda f: f.put(f.tensor(MATRIX) - 6, b"\n"),
    "unknown name": lambda f: f.put(f.tensor(MATRIX) - 6, b"thingy"),
    "positive -exp(A_log)": lambda f: f.put(f.data["blk.0.ssm_a"], struct.pack("<f", 1.0)),
}
FACTS: dict[str, Callable[[File], bytes]] = {
    "block_count": lambda f: f.set_u32("qwen35.block_count", U32),
    "block_count of zero": lambda f: f.set_u32("qwen35.block_count", 0),
    "one block less": lambda f: f.set_u32("qwen35.block_count", 4),
    "nextn_predict_layers": lambda f: f.set_u32("qwen35.nextn_predict_layers", 5),
    "embedding_length": lambda f: f.set_u32("qwen35.embedding_length", 1 << 30),
    "head_count": lambda f: f.set_u32("qwen35.attention.head_count", 0),
    "very many heads": lambda f: f.set_u32("qwen35.attention.head_count", 1 << 30),
    "head_count_kv": lambda f: f.set_u32("qwen35.attention.head_count_kv", 3),
    "key_length": lambda f: f.set_u32("qwen35.attention.key_length", 1 << 30),
    "dimension_count": lambda f: f.set_u32("qwen35.rope.dimension_count", 7),
    "time_step_rank": lambda f: f.set_u32("qwen35.ssm.time_step_rank", 1 << 30),
    "group_count": lambda f: f.set_u32("qwen35.ssm.group_count", 3),
    "inner_size": lambda f: f.set_u32("qwen35.ssm.inner_size", 97),
    "conv_kernel": lambda f: f.set_u32("qwen35.ssm.conv_kernel", 1 << 30),
    "feed_forward_length": lambda f: f.set_u32("qwen35.feed_forward_length", 1 << 31),
    "context_length": lambda f: f.set_u32("qwen35.context_length", 0),
    "freq_base": lambda f: f.set_f32("qwen35.rope.freq_base", float("nan")),
    "infinite freq_base": lambda f: f.set_f32("qwen35.rope.freq_base", float("inf")),
    "layer_norm_rms_epsilon": lambda f: f.set_f32("qwen35.attention.layer_norm_rms_epsilon", -1.0),
    "architecture": lambda f: f.put(f.value("general.architecture") + 8, b"qwenXX"),
    "eos_token_id": lambda f: f.set_u32("tokenizer.ggml.eos_token_id", 99999),
    "token twice": lambda f: f.whole.replace(b"token17", b"token18", 1),
    "merge of no tokens": lambda f: f.whole.replace(text("a b"), text("a c")),
    "fewer token types": lambda f: f.put(f.value("tokenizer.ggml.token_type") + 4, u64(511)),
}
IN_LARGE_FILES: dict[str, Callable[[File], bytes]] = {
    "many bytes": lambda f: f.put(f.value(TOKENS), u32(0) + u64(1 << 31)),
    "many long numbers": lambda f: f.put(f.value(TOKENS), u32(10) + u64(1 << 28)),
    "many strings": lambda f: f.put(f.value(TOKENS), u32(8) + u64(1 << 28)),
    "long string": lambda f: f.put(f.value("general.architecture"), u64(1 << 31)),
    "long key": lambda f: f.put(FIRST_KEY, u64(1 << 31)),
    "2^28 keys": lambda f: f.put(16, u64(1 << 28)),
    "2^26 tensors": lambda f: f.put(8, u64(1 << 26)),
    "zeros for tensors": lambda f: f.whole[: f.tensor("token_embd.weight") - 25],
}
"""Files of 3 GB, nearly all of it zeros that take no space, so that such sizes can be true."""
DAMAGES = CUTS | HEADER | TENSORS | FACTS | IN_LARGE_FILES


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each file came to, and by how much memory grew over all of them."""
    path = tmp_path_factory.mktemp("damage")
    make_checkpoint(path / "hf", "qwen3_5", Variant(mtp=True))
    write_gguf(path / "whole.gguf", path / "hf")
    folder = path / "files"
    folder.mkdir()
    file = File(path / "whole.gguf")
    (folder / "whole.gguf").write_bytes(file.whole)
    for name, damage in DAMAGES.items():
        damaged = damage(file)
        assert damaged != file.whole, name
        (folder / f"{name}.gguf").write_bytes(damaged)
        if name in IN_LARGE_FILES:
            os.truncate(folder / f"{name}.gguf", 3 << 30)
    done = subprocess.run(
        [sys.executable, str(OPEN_EACH), str(folder), str(MEGABYTES)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line.get("said", line.get("grown")) for line in lines}


def test_the_whole_file_is_read(said: dict[str, Any]) -> None:
    assert said["whole"] == ""
    assert len(DAMAGES) >= 50


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_said_in_one_line(said: dict[str, Any], name: str) -> None:
    assert said[name], "was not noticed"
    assert "\n" not in said[name] and len(said[name]) < 400


def test_damage_takes_little_memory(said: dict[str, Any]) -> None:
    """Beyond the interpreter; the address space was limited too."""
    assert said["memory"] < MEGABYTES / 4
