"""The caches between two passes, for a drafter that works on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thalweg.runner.runner import Runner
    from thalweg.scheduler.scheduler import Scheduler


@dataclass(frozen=True, slots=True, eq=False)
class EngineMemory:
    """A `speculative.drafter.DraftMemory`."""

    scheduler: Scheduler
    runner: Runner

    def settle(self) -> None:
        pending = self.scheduler.take_pending()
        self.runner.fold(pending.folds)
        self.runner.prepare(pending.copies, ())

    def make_room(self, num_blocks: int, num_slots: int) -> None:
        self.scheduler.make_room(num_blocks, num_slots)
