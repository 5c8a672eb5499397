"""How many drafts a pass should have: as many as pay. It changes the speed and no token.

A draft gains a token as often as it is right, and makes its pass longer. Both are measured all the
time; the number of drafts that promises the most tokens a second is asked for, of which 0 is one.
What is lost by wrong guesses about guesses is kept in an account that ends them when it is full, so
that answers are never slower for long, whatever the drafter, the text and the machine do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from thalweg.speculative.acceptance_rate import AcceptanceRate
from thalweg.speculative.pass_cost import PassCost

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

Key = TypeVar("Key", bound="Hashable")
"""Names an answer."""

FIRST_GUESS = 0.7
"""Chance of a draft to be right before any was seen."""
MARGIN = 1.02
"""Drafts have to promise so many times the tokens a second."""
FIRST_PAUSE, LONGEST_PAUSE = 8, 64
"""Passes of an answer without drafts until one is tried; doubled each time that it was wrong."""
CLOSED_AFTER = 16
"""Passes without drafts that should pay."""
DRAIN = 0.015
"""Of all time, so much may be lost in the long run,"""
MOST_LOST = 4.0
"""and so many passes without drafts at once."""


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Key]):
    """An answer that could have drafts in the next pass."""

    key: Key
    most: int
    """Drafts of use, at least 1."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of an answer's drafts."""

    num_drafts: int
    num_kept: int


@dataclass(frozen=True, slots=True)
class GateRecord:
    """What was decided so far."""

    num_drafting: int = 0
    """Passes for which drafts were asked because they should pay."""
    num_held: int = 0
    """Passes without, because they should not."""
    num_measuring: int = 0
    """Passes without, to see how long these take."""
    num_probing: int = 0
    """Passes for which a draft was asked to see if it is right."""
    num_stopped: int = 0
    """How often the account of what was lost was full."""


@dataclass(slots=True, eq=False)
class _Answer:
    rate: AcceptanceRate
    pause: int = FIRST_PAUSE
    num_idle: int = 0
    """Passes since a draft was verified."""

    @property
    def is_due(self) -> bool:
        return self.num_idle >= self.pause


@dataclass(slots=True)
class _Account:
    """Seconds lost by drafts: filled by losses, emptied by gains and, slowly, by time."""

    lost: float = 0.0
    is_full: bool = False

    def add(self, seconds: float, lost: float, *, most: float) -> bool:
        """Whether it has just become full."""
        self.lost = max(0.0, self.lost + lost - DRAIN * seconds)
        was_full, self.is_full = self.is_full, self.lost > (most / 2 if self.is_full else most)
        return self.is_full and not was_full


class Gate(Generic[Key]):
    """Of one engine. Fed with what was measured; it looks at no clock."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._cost = PassCost()
        self._rate = AcceptanceRate(lambda place: FIRST_GUESS)
        self._answers: dict[Key, _Answer] = {}
        self._account = _Account()
        self._num_closed = 0

    def choose(self, candidates: Sequence[Candidate[Key]]) -> list[int]:
        """How many drafts each should have in the next pass, which computes these answers."""
        count = len(candidates)
        none = [0] * count
        self._answers = {each.key: self._answer(each.key) for each in candidates}
        answers = list(self._answers.values())
        if self._cost.is_stale(count):
            self._counts["num_measuring"] += 1
            return none
        if self._account.is_full:
            self._counts["num_held"] += 1
            self._num_closed += 1
            return none
        chosen = self._most_tokens(candidates, answers)
        drafts = any(chosen)
        waiting = [i for i, n in enumerate(chosen) if not n and answers[i].is_due]
        if waiting:
            longest = max(waiting, key=lambda i: answers[i].num_idle)
            chosen[longest] = 1
        decision = "num_drafting" if drafts else "num_probing" if waiting else "num_held"
        self._counts[decision] += 1
        self._num_closed = 0 if drafts else self._num_closed + 1
        return chosen

    def observe(
        self, verified: Mapping[Key, Verified], *, num_seqs: int, seconds: float | None
    ) -> None:
        """What came of a pass of `num_seqs` sequences, by answer; `seconds` is None if it computed
        more than answers, which says nothing of the time that drafts take."""
        for key, answer in self._answers.items():
            if (found := verified.get(key)) is not None:
                self._learn(answer, found)
            else:
                answer.num_idle += 1
        if seconds is None:
            return
        num_drafts = sum(found.num_drafts for found in verified.values())
        num_tokens = num_seqs + sum(found.num_kept for found in verified.values())
        self._cost.observe(num_seqs, num_drafts, seconds)
        if (plain := self._cost.plain(num_seqs)) is None:
            return
        lost = 0.0
        if num_drafts:  # the usual time, lest one hiccup of the machine fill the account
            usual = plain * self._cost.ratio(num_seqs, num_drafts)
            lost = usual - plain * num_tokens / num_seqs
        if self._account.add(seconds, lost, most=MOST_LOST * plain):
            self._counts["num_stopped"] += 1

    @property
    def record(self) -> GateRecord:
        return GateRecord(**self._counts)

    @property
    def is_open(self) -> bool:
        """Whether drafts were asked for lately because they should pay, or nobody knows yet."""
        return self._num_closed < CLOSED_AFTER

    def reason(self, num_seqs: int = 1) -> str:
        """What the last decisions rest on."""
        ratios = self._cost.ratios(num_seqs, 1)
        return (
            f"{self._rate(0):.0%} of the first drafts are right, "
            f"and a pass with one takes {ratios[1]:.2f} times as long"
        )

    def _most_tokens(
        self, candidates: Sequence[Candidate[Key]], answers: list[_Answer]
    ) -> list[int]:
        """The drafts that promise the most tokens a second, the likeliest first."""
        count = len(candidates)
        gains = [
            (gain, i)
            for i, (each, answer) in enumerate(zip(candidates, answers, strict=True))
            for gain in answer.rate.gains(each.most)
        ]
        gains.sort(key=lambda pair: -pair[0])  # stable: an answer's own stay in order
        ratios = self._cost.ratios(count, len(gains))
        best, most, num_tokens = 0, MARGIN * count, float(count)
        for num_drafts, (ratio, (gain, _)) in enumerate(zip(ratios[1:], gains, strict=False), 1):
            num_tokens += gain
            if num_tokens / ratio > most:
                best, most = num_drafts, num_tokens / ratio
        chosen = [0] * count
        for _, i in gains[:best]:
            chosen[i] += 1
        return chosen

    def _learn(self, answer: _Answer, found: Verified) -> None:
        answer.rate.observe(found.num_drafts, found.num_kept)
        self._rate.observe(found.num_drafts, found.num_kept)
        was_due, answer.num_idle = answer.is_due, 0
        if found.num_kept:  # look again at once
            answer.pause, answer.num_idle = FIRST_PAUSE, FIRST_PAUSE
        elif was_due:
            answer.pause = min(2 * answer.pause, LONGEST_PAUSE)

    def _answer(self, key: Key) -> _Answer:
        return self._answers.get(key) or _Answer(AcceptanceRate(self._rate))
