"""Drafts by the model's own multi-token-prediction head, chained for more than one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch

from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.errors import OutOfCache
from thalweg.ids import NULL, SKIP
from thalweg.speculative.choice import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.memory.manager import CacheManager
    from thalweg.memory.storage import LayerCache
    from thalweg.models.mtp import MTPModel
    from thalweg.ops.sampling import Sample
    from thalweg.speculative.drafter import DraftMemory, DraftRow


class MTPDrafter:
    """Of a head that has seen all that is computed: `MTPModel` sees to that.

    The first draft's row is (the token to be computed next, the target's last hidden state), each
    further one is (the last draft, the head's own hidden state). Their KV rows lie where those of
    the same positions will be written when the drafts are verified.
    """

    def __init__(
        self,
        model: MTPModel,
        cache: LayerCache,
        caches: CacheManager,
        *,
        memory: DraftMemory,
        sample: Sample,
    ) -> None:
        self._model, self._cache = model, cache
        self._caches, self._memory = caches, memory
        self._sample = sample

    @torch.inference_mode()
    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Fewer where there is no memory for more."""
        drafts: list[list[int]] = [[] for _ in rows]
        self._memory.settle()
        self._free_memory(rows)
        with ExitStack() as stack:
            room = [self._reserve(row, stack) for row in rows]
            going = [i for i, num_rows in enumerate(room) if num_rows]
            if not going:
                return [()] * len(rows)
            previous = self._model.last_hidden([rows[i].seq for i in going], self._cache)
            while going:
                inputs = [_next_input(rows[i], drafts[i]) for i in going]
                batch = ForwardBatch.decode(inputs, block_size=self._caches.block_size)
                hidden = self._model.draft(batch, previous, self._cache)
                draws = [rows[i].draw(len(drafts[i])) for i in going]
                chosen = choose(self._model.logits(hidden), draws, self._sample)
                more = []
                for at, (i, token) in enumerate(zip(going, chosen, strict=True)):
                    if token is not None:
                        drafts[i].append(token)
                        if len(drafts[i]) < room[i]:
                            more.append(at)
                going, previous = [going[at] for at in more], hidden[more]
        return [tuple(each) for each in drafts]

    def _free_memory(self, rows: Sequence[DraftRow]) -> None:
        """The step to come will want the same, and more."""
        size, seqs = self._caches.block_size, [row.seq for row in rows]
        ends = [row.seq.num_computed + row.num_drafts for row in rows]
        blocks = [-(-end // size) - len(seq.blocks) for end, seq in zip(ends, seqs, strict=True)]
        num_shared = sum(not self._caches.slots.exclusive(seq.slot) for seq in seqs)
        self._memory.make_room(sum(max(0, n) for n in blocks), num_shared)

    def _reserve(self, row: DraftRow, stack: ExitStack) -> int:
        """Rows for as many drafts as there is memory for, until the stack is closed: the last
        reservation ends first, so that the pools are as they were."""
        for num_rows in range(row.num_drafts, 0, -1):
            try:
                reservation = self._caches.reserve(row.seq, num_rows)
            except OutOfCache:
                continue
            stack.callback(self._caches.abort, reservation)
            return num_rows
        return 0


def _next_input(row: DraftRow, drafts: Sequence[int]) -> SequenceInput:
    token = drafts[-1] if drafts else row.tokens[-1]
    start = row.seq.num_computed + len(drafts)
    return SequenceInput([token], start, row.seq.blocks, NULL, [SKIP])
