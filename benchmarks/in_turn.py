"""Two engines timed in turn, A B A B, so that a change of the machine's speed meets both."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import thalweg
from thalweg.cli.machine import machine_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class InTurn:
    ours: tuple[float, ...]
    """Seconds."""
    theirs: tuple[float, ...]

    @property
    def our_median(self) -> float:
        return statistics.median(self.ours)

    @property
    def their_median(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """How many times as fast we are."""
        return self.their_median / self.our_median


def in_turn(
    ours: Callable[[], float], theirs: Callable[[], float], *, repeats: int, warm_up: bool = True
) -> InTurn:
    if warm_up:
        ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    a, b = zip(*pairs, strict=True)
    return InTurn(a, b)


def heading(threads: int, *packages: str) -> str:
    """What was measured where, in one line."""
    versions = [f"thalweg {thalweg.__version__}", *(f"{p} {metadata.version(p)}" for p in packages)]
    return f"{', '.join(versions)}; {threads} threads; {machine_name()}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; every column but the first is to the right."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))
