"""Prompt lookup: what followed the last few tokens when they were there before. No model."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.speculative.drafter import DraftRow

LONGEST, SHORTEST = 5, 2
"""Tokens that have to match; the longest match counts, and of several the latest."""
WINDOW = 1 << 14
"""Tokens that are searched, from the end."""


class LookupDrafter:
    """Good at answers that repeat their prompt or themselves: edits, extracts, code."""

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        return [look_up(row.tokens, row.num_drafts) for row in rows]


def look_up(tokens: Sequence[int], num_drafts: int) -> tuple[int, ...]:
    """Up to `num_drafts` tokens that followed an earlier occurrence of the last ones.

    A match near the end goes on into its own continuation, so a loop is guessed to go on.
    """
    recent = array("q", tokens[-WINDOW:])
    for size in range(min(LONGEST, len(recent) - 1), SHORTEST - 1, -1):
        if (start := _last_occurrence(recent, size)) is not None:
            known = list(recent)
            for at in range(start + size, start + size + num_drafts):
                known.append(known[at])
            return tuple(known[len(recent) :])
    return ()


def _last_occurrence(tokens: array[int], size: int) -> int | None:
    """Where the last `size` tokens occurred before, ending before the end."""
    width = tokens.itemsize
    text, pattern = tokens[:-1].tobytes(), tokens[-size:].tobytes()
    at = text.rfind(pattern)
    while at > 0 and at % width:  # not on a token's border
        at = text.rfind(pattern, 0, at + len(pattern) - 1)
    return None if at < 0 else at // width
