"""How many new tokens a step may have: two ways to share it between answers and prompts.

Both give every running sample a token first. What is left goes to prompts in order of rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.scheduler.cost import CostModel

if TYPE_CHECKING:
    from thalweg.config import EngineConfig
    from thalweg.scheduler.cost import Load

LEAST_PROGRESS = 16
"""Prompt tokens of a step that no bound takes away: nobody waits for ever."""
FIRST_GUESS = 32
"""Tokens of a bounded step before any was measured."""


class StepBudget(Protocol):
    """What is left of one step."""

    @property
    def has_room(self) -> bool:
        """Another sample may begin in this step."""

    def take(self, start: int, wanted: int) -> int:
        """How many of a sample's next `wanted` tokens may be in the step, from token `start` on;
        they are taken."""


class Policy(Protocol):
    def begin(self, load: Load, *, num_answers: int) -> StepBudget:
        """A step that has `load` in any case, on which `num_answers` running answers wait."""

    def observe(self, load: Load, seconds: float) -> None:
        """What a step took."""


@dataclass(slots=True)
class TokenBudget:
    num_left: int

    @property
    def has_room(self) -> bool:
        return self.num_left > 0

    def take(self, start: int, wanted: int) -> int:
        num = max(0, min(wanted, self.num_left))
        self.num_left -= num
        return num


@dataclass(frozen=True, slots=True)
class FirstCome:
    """Every step is as full as it may be: the most tokens a second."""

    max_num_batched_tokens: int

    def begin(self, load: Load, *, num_answers: int) -> StepBudget:
        return TokenBudget(self.max_num_batched_tokens - load.num_tokens)

    def observe(self, load: Load, seconds: float) -> None:
        """It is all the same to this policy."""


@dataclass(slots=True)
class TimeBudget:
    """No more prompt tokens than the cost model finds time for."""

    load: Load
    tokens: TokenBudget
    seconds: float
    model: CostModel
    num_taken: int = 0

    @property
    def has_room(self) -> bool:
        fits = self.model.seconds(self.load.more(0, LEAST_PROGRESS)) <= self.seconds
        return self.tokens.has_room and (fits or not self.num_taken)

    def take(self, start: int, wanted: int) -> int:
        least = min(wanted, LEAST_PROGRESS - self.num_taken)
        sure = max(FIRST_GUESS, 2 * self.model.most_tokens) - self.load.num_tokens
        low, high = 0, min(wanted, sure)  # the most that fits is in low .. high
        while low < high:
            middle = (low + high + 1) // 2
            if self.model.seconds(self.load.more(start, middle)) <= self.seconds:
                low = middle
            else:
                high = middle - 1
        num = self.tokens.take(start, max(low, least))
        self.load = self.load.more(start, num)
        self.num_taken += num
        return num


class BoundedInterToken:
    """While answers are running, a step takes at most about `seconds`; it is full otherwise."""

    def __init__(self, max_num_batched_tokens: int, seconds: float) -> None:
        self._full = FirstCome(max_num_batched_tokens)
        self._seconds = seconds
        self._model = CostModel()

    def begin(self, load: Load, *, num_answers: int) -> StepBudget:
        if not num_answers:
            return self._full.begin(load, num_answers=0)
        tokens = TokenBudget(self._full.max_num_batched_tokens - load.num_tokens)
        return TimeBudget(load, tokens, self._seconds, self._model)

    def observe(self, load: Load, seconds: float) -> None:
        self._model.observe(load, seconds)


def make_policy(config: EngineConfig) -> Policy:
    """The one that a configuration asks for."""
    if config.max_inter_token_ms is None:
        return FirstCome(config.max_num_batched_tokens)
    return BoundedInterToken(config.max_num_batched_tokens, config.max_inter_token_ms / 1000)
