"""How likely a draft is right, learnt from those that were verified."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Protocol

PRIOR_WEIGHT = 2.0
"""What is expected beforehand counts as so many drafts."""
MEMORY = 0.85
"""Weight of a draft relative to the next one at its place."""


class Prior(Protocol):
    def __call__(self, place: int) -> float:
        """The chance of a draft at a place (0: the first) to be right if all before it are."""


class AcceptanceRate:
    """By place. What was not seen yet is as `prior` says."""

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self._tried: list[float] = []
        self._kept: list[float] = []

    def __call__(self, place: int) -> float:
        """The same as of a `Prior`, so that one may build on another."""
        prior = self._prior(place)
        if place >= len(self._tried):
            return prior
        return (self._kept[place] + PRIOR_WEIGHT * prior) / (self._tried[place] + PRIOR_WEIGHT)

    def observe(self, num_drafts: int, num_kept: int) -> None:
        """The first wrong draft of a pass is the last one that says anything."""
        for place in range(min(num_kept + 1, num_drafts)):
            if place == len(self._tried):
                self._tried.append(0.0)
                self._kept.append(0.0)
            self._tried[place] = MEMORY * self._tried[place] + 1
            self._kept[place] = MEMORY * self._kept[place] + (place < num_kept)

    def gains(self, num_drafts: int) -> list[float]:
        """Tokens that the first, second, ... draft of a row gains on average."""
        return list(accumulate(map(self, range(num_drafts)), mul))
