from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thalweg.errors import RequestError
from thalweg.text import IncrementalDetokenizer, StopChecker, Tokenizer


def run(pieces: list[str], stops: list[str], *, include_stop: bool = False) -> tuple[str, bool]:
    checker = StopChecker(stops, include_stop=include_stop)
    text = ""
    for piece in pieces:
        emitted, finished = checker.push(piece)
        text += emitted
        if finished:
            return text, True
    return text + checker.flush(), False


def specified(text: str, stops: list[str], *, include_stop: bool) -> tuple[str, bool]:
    """The definition, read off: grow the text by a character until it ends in a stop string."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            start = end - max(map(len, ending))
            return text[: end if include_stop else start], True
    return text, False


@given(
    text=st.text("abc", max_size=12),
    cuts=st.sets(st.integers(0, 12)),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    include_stop=st.booleans(),
)
@example(text="aab", cuts={1, 2}, stops=["ab"], include_stop=False)
@example(text="abac", cuts={3}, stops=["abab", "bac"], include_stop=False)
@example(text="abc", cuts=set(), stops=["abc", "b"], include_stop=False)
@example(text="xabc", cuts=set(), stops=["c", "abc", "bc"], include_stop=False)
def test_the_result_depends_on_the_text_and_not_on_its_pieces(
    text: str, cuts: set[int], stops: list[str], include_stop: bool
) -> None:
    at = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[i:j] for i, j in pairwise(at)]
    want = specified(text, stops, include_stop=include_stop)
    assert run(pieces, stops, include_stop=include_stop) == want


def test_an_ambiguous_tail_is_held_and_released_when_it_cannot_match() -> None:
    checker = StopChecker(["</end>"])
    assert checker.push("text </e") == ("text ", False)
    assert checker.push("n") == ("", False)
    assert checker.push("ough") == ("</enough", False)
    assert checker.push(" <") == (" ", False)
    assert checker.flush() == "<"


def test_what_matched_is_known() -> None:
    checker = StopChecker(["one", "two"])
    assert checker.push("a two one") == ("a ", True)
    assert checker.matched == "two"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="stop = ''"):
        StopChecker(["x", ""])


@pytest.mark.parametrize("include_stop", [False, True])
@pytest.mark.parametrize("by_byte", [False, True])
def test_a_stop_string_split_over_tokens(
    tokenizer: Tokenizer, include_stop: bool, by_byte: bool
) -> None:
    text = "alpha beta gamma delta"
    ids = tokenizer.encode(text)
    if by_byte:
        ids = [i for char in text for i in tokenizer.encode(char)]
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [detokenizer.push(i) for i in ids] + [detokenizer.flush()]
    want = "alpha beta gamma" if include_stop else "alpha "
    assert run(pieces, ["beta gamma"], include_stop=include_stop) == (want, True)
    assert run(pieces, ["al"], include_stop=include_stop) == ("al" * include_stop, True)
    assert run(pieces, ["delta force", "deltas"], include_stop=include_stop) == (text, False)
