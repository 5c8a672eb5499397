"""Drafters that know the answers, and are as wrong as a test wants."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from serving import Result
    from thalweg.scheduler.request import Request
    from thalweg.speculative.drafter import DraftRow


@dataclass(eq=False)
class KnowsAnswers:
    """Proposes what comes, cut at a random length and wrong at a random place.

    `accuracy` is the chance of each token to be right. Different answers to one prompt are told
    apart by what they begin with.
    """

    texts: list[list[int]]
    accuracy: float = 1.0
    varies: bool = False
    """Rows get different numbers of drafts, often none."""
    rng: random.Random = field(default_factory=lambda: random.Random(5))
    num_asked: int = 0

    @classmethod
    def of(
        cls,
        requests: Iterable[Request],
        results: Mapping[str, Result],
        accuracy: float = 1.0,
        *,
        varies: bool = False,
    ) -> KnowsAnswers:
        texts = [
            [*request.prompt, *answer.token_ids]
            for request in requests
            for answer in results[request.id].answers
        ]
        return cls(texts, accuracy, varies)

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        self.num_asked += 1
        return [self._guess(row) for row in rows]

    def _guess(self, row: DraftRow) -> tuple[int, ...]:
        n = len(row.tokens)
        known = next((t for t in self.texts if t[:n] == row.tokens), [])
        coming = (known[n:] + [0] * row.num_drafts)[: row.num_drafts]
        if self.varies:
            coming = coming[: self.rng.randint(0, row.num_drafts)]
        return tuple(t if self.rng.random() < self.accuracy else t ^ 1 for t in coming)
