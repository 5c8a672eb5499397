"""From a step's plan to the tensors of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.batch import ForwardBatch, SequenceInput

if TYPE_CHECKING:
    from thalweg.scheduler.plan import ScheduledRow, StepPlan


class BatchBuilder:
    def __init__(self, block_size: int, device: str) -> None:
        self._block_size = block_size
        self._device = device

    def build(self, plan: StepPlan) -> ForwardBatch:
        return ForwardBatch.ragged(
            [sequence_input(row) for row in plan.rows],
            plan.logits_rows,
            block_size=self._block_size,
            device=self._device,
        )


def sequence_input(row: ScheduledRow) -> SequenceInput:
    """What the pass needs to know of one reservation."""
    seq = row.reservation.seq
    return SequenceInput(
        token_ids=row.token_ids,
        start=seq.num_computed,
        blocks=seq.blocks,
        load_slot=row.reservation.load_slot,
        store_slots=row.reservation.store_slots,
        num_written=seq.num_written,
    )
