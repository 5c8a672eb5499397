from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.errors import CheckpointError
from thalweg.text import Tokenizer, tokenizer_from_gguf


@pytest.fixture(scope="module")
def rebuilt(gguf_metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(gguf_metadata)


@given(text=st.text(max_size=40), parse_special=st.booleans())
def test_a_rebuilt_tokenizer_is_the_original(
    rebuilt: Tokenizer, tokenizer: Tokenizer, text: str, parse_special: bool
) -> None:
    ids = rebuilt.encode(text, parse_special=parse_special)
    assert ids == tokenizer.encode(text, parse_special=parse_special)
    assert rebuilt.decode(ids) == tokenizer.decode(ids)


def test_facts_of_a_rebuilt_tokenizer(rebuilt: Tokenizer, tokenizer: Tokenizer) -> None:
    assert rebuilt.special_ids == tokenizer.special_ids
    assert rebuilt.vocab_size == tokenizer.vocab_size
    assert rebuilt.eos_ids == tokenizer.eos_ids
    assert rebuilt.bos_id == rebuilt.token_to_id("<|endoftext|>")
    assert rebuilt.names == {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    text = "<|im_start|>user\n<think>x</think><|im_end|>"
    for parse_special in (False, True):
        ids = rebuilt.encode(text, parse_special=parse_special)
        assert ids == tokenizer.encode(text, parse_special=parse_special)


def words(pre: str, text: str, metadata: dict[str, Any]) -> list[str]:
    """Where `pre` cuts: the vocabulary reduced to bytes, and each word made one token."""
    tokenizer = tokenizer_from_gguf(metadata | {"tokenizer.ggml.pre": pre})
    cutter = tokenizer._core.pre_tokenizer
    assert cutter is not None
    return [text[start:end] for _, (start, end) in cutter.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "text", "want"),
    [
        ("gpt-2", "it's 1234  x", ["it", "'s", " 1234", " ", " x"]),
        ("gpt-2", "IT'S\n\n", ["IT", "'", "S", "\n\n"]),
        ("smollm", "it's 1234  x", ["it", "'s", " ", "1", "2", "3", "4", " ", " x"]),
        ("smollm", "½ ٣x", ["½", " ", "٣", "x"]),
        ("qwen2", "IT'S 1234!\n\n x", ["IT", "'S", " ", "1", "2", "3", "4", "!\n\n", " x"]),
        ("qwen2", "(का)", ["(क", "ा)"]),
        ("qwen35", "(का)", ["(का", ")"]),
        ("llama-bpe", "it's 1234567", ["it", "'s", " ", "123", "456", "7"]),
        ("default", "a+b 12345", ["a", "+", "b", " ", "123", "45"]),
    ],
)
def test_words_of_each_family(
    pre: str, text: str, want: list[str], gguf_metadata: dict[str, Any]
) -> None:
    assert words(pre, text, gguf_metadata) == want


@pytest.mark.parametrize("add_bos", [None, False, True])
def test_bos_as_the_file_says_or_else_the_family(
    gguf_metadata: dict[str, Any], add_bos: bool | None
) -> None:
    said = {} if add_bos is None else {"tokenizer.ggml.add_bos_token": add_bos}
    for pre, by_itself in (("qwen2", False), ("llama-bpe", True)):
        tokenizer = tokenizer_from_gguf(gguf_metadata | said | {"tokenizer.ggml.pre": pre})
        begins = tokenizer.encode("x")[0] == tokenizer.bos_id
        assert begins is (by_itself if add_bos is None else add_bos)
        assert tokenizer.encode_fragment("x")[0] != tokenizer.bos_id


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model", "llama", "model = 'llama' is not implemented: 'gpt2'"),
        ("model", None, "model is missing"),
        ("pre", "tekken", "pre = 'tekken' is not implemented: 'default', 'gpt-2'"),
        ("pre", None, "pre is missing"),
        ("tokens", ["a", "a", ""], "token_type has"),
        ("tokens", "abc", "tokens = 'abc' is not allowed: list"),
        ("token_type", [1, 2], "token_type has 2 entries"),
        ("merges", ["ab"], "merges: 'ab' is not allowed: two tokens of one"),
        ("merges", [["a", "b"]], "merges: \\['a', 'b'\\] is not allowed"),
        ("merges", ["ab zz"], "merges: 'ab zz' is not allowed: two tokens of one"),
        ("bos_token_id", 10**6, "bos_token_id = 1000000 is not allowed"),
        ("eos_token_id", "2", "eos_token_id = '2' is not allowed: int"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    gguf_metadata: dict[str, Any], key: str, value: Any, said: str
) -> None:
    damaged = gguf_metadata | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(CheckpointError, match=f"tokenizer.ggml.{said}"):
        tokenizer_from_gguf(damaged)


def test_repeated_tokens_and_a_missing_bos_are_refused(gguf_metadata: dict[str, Any]) -> None:
    tokens = ["!", *gguf_metadata["tokenizer.ggml.tokens"][1:-1], "!"]
    with pytest.raises(CheckpointError, match=r"tokens: \d of \d+ are empty or repeated"):
        tokenizer_from_gguf(gguf_metadata | {"tokenizer.ggml.tokens": tokens})
    without = {k: v for k, v in gguf_metadata.items() if k != "tokenizer.ggml.bos_token_id"}
    with pytest.raises(CheckpointError, match="bos_token_id is missing"):
        tokenizer_from_gguf(without | {"tokenizer.ggml.add_bos_token": True})
