"""What may restrict the tokens of an answer beside its sampling parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class TokenConstraint(Protocol):
    """Which tokens may be next in one answer."""

    def mask(self, answer: Sequence[int]) -> bytearray | None:
        """A byte a vocabulary id, not 0 where it may follow `answer`; ids beyond its end may not.
        None: any may. A function of `answer` alone, which may also hold drafts nobody keeps."""
