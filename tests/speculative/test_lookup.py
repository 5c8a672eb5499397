from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thalweg.speculative.lookup import LONGEST, SHORTEST, WINDOW, look_up


def obvious(tokens: list[int], num_drafts: int) -> tuple[int, ...]:
    for size in range(LONGEST, SHORTEST - 1, -1):
        for start in range(len(tokens) - size - 1, -1, -1):
            if len(tokens) > size and tokens[start : start + size] == tokens[-size:]:
                known = list(tokens)
                for i in range(num_drafts):
                    known.append(known[start + size + i])
                return tuple(known[len(tokens) :])
    return ()


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 6))
def test_is_the_latest_of_the_longest_matches(tokens: list[int], num_drafts: int) -> None:
    assert look_up(tokens, num_drafts) == obvious(tokens, num_drafts)


@given(st.lists(st.sampled_from([0, 1, 256, 257, 65536, 2**24]), max_size=30))
def test_a_match_begins_on_a_tokens_border(tokens: list[int]) -> None:
    """Where the bytes of two tokens look like a third."""
    assert look_up(tokens, 2) == obvious(tokens, 2)


def test_a_loop_is_guessed_to_go_on() -> None:
    assert look_up([9, 1, 2, 1, 2, 1, 2], 5) == (1, 2, 1, 2, 1)


def test_what_is_too_far_back_is_not_searched() -> None:
    tokens = [7, 8, 5, *[0, 1] * (WINDOW // 2), 7, 8]
    assert look_up(tokens, 1) == ()
    assert look_up([3, 7, 8, 5, *tokens[-100:]], 1) == (5,)
