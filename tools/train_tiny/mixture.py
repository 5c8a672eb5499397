"""Which tasks a step trains on, and what is measured.

Short and easy instances come first: looking a value up is learned from lists of two pairs and
texts of forty words, and only then from long ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .tasks import (
    ADDITION,
    ADDITION_THINKING,
    ARITHMETIC,
    ARITHMETIC_THINKING,
    DIALOGUE,
    JSON_OBJECT,
    PERSONAL,
    READING,
    REVERSE,
    TOOL_CALL,
    TOOL_NONE,
    TOOL_RESULT,
    UPPER,
    Task,
    copy,
    pair_recall,
    passage_recall,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random


_RAMP_STEPS = 600  # until instances have their full size
_LATE = 2_170  # looking up is learned by then; what is still weak gets more of the documents


@dataclass(frozen=True, slots=True)
class Share:
    task: Task
    weight: float  # of the documents
    chained: int = 1  # up to this many examples make one conversation


def _between(low: int, high: int) -> Callable[[Random], int]:
    return lambda rng: rng.randint(low, high)


def short_shares(passages: Sequence[str], step: int) -> list[Share]:
    """Documents of at most a few hundred tokens.

    At first half of the documents are lists and copies: to look something up is what most of the
    other tasks need, and tool calls cost many tokens for few that the model writes.
    """
    ramp = min(1.0, step / _RAMP_STEPS)

    def between(first: float, full: float) -> float:
        return first + (full - first) * ramp

    late = step >= _LATE

    return [
        Share(pair_recall("pairs", 2, round(between(4, 24)), 12), between(0.26, 0.16)),
        Share(passage_recall("passage_short", _between(10, 160), passages, 8), between(0.05, 0.08)),
        Share(copy("copy", round(between(6, 24))), between(0.24, 0.10), chained=4),
        Share(REVERSE, 0.06, chained=6),
        Share(UPPER, 0.08 if late else 0.05, chained=6),
        Share(ARITHMETIC, 0.18 if late else between(0.10, 0.14), chained=14),
        Share(ARITHMETIC_THINKING, 0.10 if late else between(0.02, 0.05)),
        Share(JSON_OBJECT, between(0.07, 0.10), chained=4),
        Share(TOOL_CALL, 0.15 if late else between(0.03, 0.09)),
        Share(TOOL_RESULT, between(0.02, 0.06)),
        Share(TOOL_NONE, 0.05 if late else 0.0),
        Share(DIALOGUE, between(0.05, 0.06), chained=5),
        Share(PERSONAL, between(0.03, 0.04)),
        Share(READING, 0.05, chained=2),
    ]


def long_shares(passages: Sequence[str]) -> list[Share]:
    """Documents of up to about 1,250 tokens."""
    return [Share(passage_recall("passage_long", _between(120, 640), passages, max_facts=8), 1.0)]


def tokenizer_tasks(passages: Sequence[str]) -> list[Task]:
    """What the tokenizer is trained on: texts without random strings."""
    return [JSON_OBJECT, TOOL_CALL, TOOL_RESULT, DIALOGUE, PERSONAL, READING, READING, ARITHMETIC]


def measured(passages: Sequence[str]) -> list[Task]:
    """The held-out figures."""
    return [
        pair_recall("pairs_16", 16, 16, max_questions=1),
        passage_recall("passage_1000", _between(500, 760), passages, max_facts=1),
        copy("copy", 20),
        REVERSE,
        UPPER,
        ADDITION,
        ADDITION_THINKING,
        ARITHMETIC,
        JSON_OBJECT,
        TOOL_CALL,
        TOOL_RESULT,
        TOOL_NONE,
        DIALOGUE,
        PERSONAL,
        READING,
    ]
