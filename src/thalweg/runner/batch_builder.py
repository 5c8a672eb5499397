"""From a step's plan to the tensors of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.batch import ForwardBatch, SequenceInput

if TYPE_CHECKING:
    from thalweg.scheduler.plan import ScheduledRow, StepPlan


class BatchBuilder:
    def __init__(self, block_size: int, device: str, *, log_size: int = 0) -> None:
        self._block_size, self._log_size = block_size, log_size
        self._device = device

    def build(self, plan: StepPlan) -> ForwardBatch:
        return ForwardBatch.ragged(
            [sequence_input(row) for row in plan.rows],
            plan.logits_rows,
            block_size=self._block_size,
            log_size=self._log_size,
            device=self._device,
        )


def sequence_input(row: ScheduledRow) -> SequenceInput:
    """What the pass needs to know of one reservation."""
    r = row.reservation
    return SequenceInput(
        token_ids=row.token_ids,
        start=r.seq.num_computed,
        blocks=r.seq.blocks,
        load_slot=r.load_slot,
        store_slots=r.store_slots,
        num_written=r.seq.num_written,
        num_pending=r.num_pending,
        num_logged=r.num_logged,
    )
