"""How often guesses were right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Of one request, or of all."""

    num_passes: int = 0
    """Passes that had drafts to verify."""
    drafted: tuple[int, ...] = ()
    """How many drafts there were at each place: first, second, ..."""
    kept: tuple[int, ...] = ()
    """How many of them were right, like all before them."""
    num_held: int = 0
    """Times that no drafts were asked for, because they should not pay or to measure that."""

    @property
    def num_drafted(self) -> int:
        return sum(self.drafted)

    @property
    def num_kept(self) -> int:
        return sum(self.kept)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """The kept part of the drafts at each place."""
        return tuple(k / d for k, d in zip(self.kept, self.drafted, strict=True))

    @property
    def mean_length(self) -> float:
        """Tokens gained by a pass with drafts; 0 before there was one."""
        return 1 + self.num_kept / self.num_passes if self.num_passes else 0.0

    def plus(self, num_drafts: int, num_kept: int) -> DraftCounts:
        """One more pass, with at least one draft."""
        drafted = zip_longest(self.drafted, (1,) * num_drafts, fillvalue=0)
        width = max(len(self.drafted), num_drafts)
        kept = zip_longest(self.kept, (1,) * num_kept, (0,) * width, fillvalue=0)
        return replace(
            self,
            num_passes=self.num_passes + 1,
            drafted=tuple(map(sum, drafted)),
            kept=tuple(map(sum, kept)),
        )

    def held(self) -> DraftCounts:
        """One more time without."""
        return replace(self, num_held=self.num_held + 1)
