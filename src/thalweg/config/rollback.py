"""How a recurrent state forgets what should not have happened."""

from __future__ import annotations

from enum import Enum


class Rollback(Enum):
    """What is kept of a pass with drafts until it is known how many are right. The bits of all
    that follows are the same."""

    CHECKPOINT = "checkpoint"
    """The state after each draft, in a spare slot; one of them is chosen."""
    REPLAY = "replay"
    """The drafts' inputs, in a log; what is right is folded into the state before the next pass."""
    REPLAY_LAZY = "replay-lazy"
    """The same, but the next pass of the sequence folds it on its way."""

    @property
    def has_log(self) -> bool:
        return self is not Rollback.CHECKPOINT
