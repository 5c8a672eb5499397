"""Which drafts count, against plain decoding written down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thalweg.speculative.acceptance import num_accepted

tokens = st.integers(0, 3)


def gained(drafts: list[int], drawn: list[int], stop_ids: set[int], budget: int) -> list[int]:
    """Draw one token after the other; go on while there is a draft that said so."""
    answer: list[int] = []
    for i, token in enumerate(drawn):
        answer.append(token)
        if token in stop_ids or len(answer) == budget:
            break
        if i == len(drafts) or drafts[i] != token:
            break
    return answer


@given(
    st.lists(tokens, max_size=5),
    st.lists(tokens, min_size=6, max_size=6),
    st.sets(tokens, max_size=2),
    st.integers(1, 7),
)
def test_the_answer_gains_what_plain_decoding_draws(
    drafts: list[int], draws: list[int], stop_ids: set[int], budget: int
) -> None:
    drawn = draws[: len(drafts) + 1]
    kept = num_accepted(drafts, drawn, stop_ids=stop_ids, budget=budget)
    assert drawn[: kept + 1] == gained(drafts, drawn, stop_ids, budget)
    assert drafts[:kept] == drawn[:kept]


def test_a_stop_id_that_was_guessed_is_not_computed() -> None:
    assert num_accepted([5, 9, 7], [5, 9, 7, 1], stop_ids={9}, budget=10) == 1
    assert num_accepted([5, 9, 7], [5, 9, 7, 1], stop_ids=(), budget=2) == 1
    assert num_accepted([5, 9, 7], [5, 9, 7, 1], stop_ids=(), budget=10) == 3
