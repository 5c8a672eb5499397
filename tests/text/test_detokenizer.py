from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from thalweg.text import IncrementalDetokenizer, SpecialTokens, Tokenizer


def deltas(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    detokenizer = IncrementalDetokenizer(
        tokenizer, kept=frozenset() if skip_special else tokenizer.special_ids
    )
    return [detokenizer.push(token_id) for token_id in ids] + [detokenizer.flush()]


@given(data=st.data(), skip_special=st.booleans())
def test_deltas_add_up_to_decode_for_any_ids(
    tokenizer: Tokenizer, data: st.DataObject, skip_special: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    joined = "".join(deltas(tokenizer, ids, skip_special=skip_special))
    assert joined == tokenizer.decode(ids, skip_special=skip_special)


@given(text=st.text(max_size=20))
def test_a_character_is_emitted_whole_and_at_its_last_byte(tokenizer: Tokenizer, text: str) -> None:
    ids = [byte_token(tokenizer, byte) for byte in text.encode()]
    want = [piece for char in text for piece in [""] * (len(char.encode()) - 1) + [char]]
    assert deltas(tokenizer, ids) == [*want, ""]


def byte_token(tokenizer: Tokenizer, byte: int) -> int:
    return next(i for i in range(300) if tokenizer.token_bytes(i) == bytes([byte]))


WELL_FORMED = [
    "🙂🚀🇫🇷",
    "👩\u200d👩\u200d👧",
    "e\u0301x a\u0308\u0304",
    "深い川の流れ",
    "नदी गहरी है",
    "물이 깊다",
]


@pytest.mark.parametrize("text", WELL_FORMED)
def test_no_replacement_character_in_wellformed_text(tokenizer: Tokenizer, text: str) -> None:
    pieces = deltas(tokenizer, tokenizer.encode(text))
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == tokenizer.decode(tokenizer.encode(text))


def test_stopping_within_a_character_ends_in_a_replacement_character(tokenizer: Tokenizer) -> None:
    first, second = (byte_token(tokenizer, byte) for byte in "🙂".encode()[:2])
    assert deltas(tokenizer, [first, second]) == ["", "", "\ufffd"]


def test_bytes_that_cannot_be_completed_are_replaced_at_once(tokenizer: Tokenizer) -> None:
    lead, letter = byte_token(tokenizer, 0xE6), byte_token(tokenizer, ord("a"))
    assert deltas(tokenizer, [lead, letter]) == ["", "\ufffda", ""]
    assert deltas(tokenizer, [byte_token(tokenizer, 0x80)]) == ["\ufffd", ""]


def test_special_tokens_and_ids_without_a_token_have_no_text(tokenizer: Tokenizer) -> None:
    end = tokenizer.token_to_id("<|im_end|>")
    think = tokenizer.token_to_id("<think>")
    assert end is not None and think is not None
    assert deltas(tokenizer, [end, think, tokenizer.vocab_size]) == ["", "<think>", "", ""]
    assert deltas(tokenizer, [end], skip_special=False) == ["<|im_end|>", ""]


def test_sentencepiece_vocabularies_lose_the_space_before_the_first_word() -> None:
    vocab = {"▁the": 0, "▁": 1, "river": 2, "<0xF0>": 3, "<0x9F>": 4, "<0x99>": 5, "<0x82>": 6}
    core = tokenizers.Tokenizer(models.BPE(vocab, [], byte_fallback=True))
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer = Tokenizer(core, SpecialTokens())
    for ids in ([0, 1, 2], [2, 0], [1, 1, 2], [3, 4, 5, 6, 0], [1]):
        assert "".join(deltas(tokenizer, ids)) == tokenizer.decode(ids) == core.decode(ids)
    assert deltas(tokenizer, [0, 3, 4, 5, 6]) == ["the", "", "", "", "🙂", ""]
