"""What guesses tokens, and what it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from thalweg.memory.manager import Sequence as CacheSequence
    from thalweg.ops.sampling import Draw


@dataclass(frozen=True, slots=True, eq=False)
class DraftRow:
    """A sequence that is about to compute its last token, and may compute guesses with it."""

    tokens: Sequence[int]
    """All that is known: the history and the token that is computed next."""
    num_drafts: int
    """At most so many are of use, at least 1."""
    seq: CacheSequence
    """Where the history is in the caches."""
    draw: Callable[[int], Draw]
    """How the answer's token after so many right drafts will be drawn."""


class DraftMemory(Protocol):
    """The caches, for a drafter that works on them."""

    def settle(self) -> None:
        """Make what is due before the next pass: afterwards every sequence's blocks and state are
        what they stand for."""

    def make_room(self, num_blocks: int, num_slots: int) -> None:
        """Have so many free, as far as what is kept for later requests can be given up."""


class Drafter(Protocol):
    """Guesses what comes next. Whatever it guesses, answers stay what they are."""

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """For each row, up to `num_drafts` tokens that may follow; none where it has no idea.

        Between two passes. All memory it takes is given back before it returns.
        """
