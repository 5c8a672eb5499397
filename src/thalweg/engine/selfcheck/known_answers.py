"""A drafter that knows the answers, so that a check decides how many drafts are right."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.speculative.drafter import DraftRow


class KnownAnswers:
    """`texts` are prompts with their answers; each draft is right with a chance of `accuracy`.
    Where some are to be wrong, rows also differ in how many they have."""

    def __init__(self, texts: Sequence[Sequence[int]], accuracy: float) -> None:
        self._texts = [list(text) for text in texts]
        self._accuracy = accuracy
        self._random = Random(0)

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        return [self._guess(list(row.tokens), row.num_drafts) for row in rows]

    def _guess(self, tokens: list[int], num_drafts: int) -> tuple[int, ...]:
        count = len(tokens)
        text = next((text for text in self._texts if text[:count] == tokens), [])
        if self._accuracy < 1:
            num_drafts = self._random.randint(1, num_drafts)
        coming = text[count : count + num_drafts]
        return tuple(t if self._random.random() < self._accuracy else t ^ 1 for t in coming)
