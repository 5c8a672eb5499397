"""Runs a model over a batch. Knows tensors and nothing of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from thalweg.batch import ForwardBatch, SequenceInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.memory.manager import BlockCopy, Fold
    from thalweg.memory.offload.host_tier import Move
    from thalweg.memory.offload.storage import HostStorage
    from thalweg.memory.storage import CacheStorage, LayerCache


class Model(Protocol):
    """All that the runner sees of a model."""

    def __call__(self, batch: ForwardBatch, caches: list[LayerCache]) -> Tensor:
        """-> the final hidden state of every row, [T, hidden_size]"""

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [L, hidden_size] -> [L, vocab_size]"""


class Runner:
    def __init__(
        self, model: Model, storage: CacheStorage, host: HostStorage | None = None
    ) -> None:
        self._model = model
        self._storage = storage
        self._host = host

    @torch.inference_mode()
    def forward(
        self, batch: ForwardBatch, copies: Sequence[BlockCopy] = (), moves: Sequence[Move] = ()
    ) -> Tensor:
        """Make the copies and the moves, then run the pass. -> hidden states whose logits are
        wanted, [L, D]"""
        self.prepare(copies, moves)
        hidden = self._model(batch, self._storage.layers)
        return hidden[batch.logits_rows]

    def prepare(self, copies: Sequence[BlockCopy], moves: Sequence[Move]) -> None:
        """Make the copies of forks, then the moves to and from the host tier."""
        self._storage.copy(copies)
        for move in moves:
            assert self._host is not None
            self._host.copy(move)

    @torch.inference_mode()
    def fold(self, folds: Sequence[Fold]) -> None:
        """Bring states past what is logged: a pass that has no new tokens."""
        if not folds:
            return
        seqs = [SequenceInput.fold(fold.slot, fold.num_pending) for fold in folds]
        size, log_size = self._storage.block_size, self._storage.log_size
        batch = ForwardBatch.ragged(seqs, [], block_size=size, log_size=log_size)
        self._model(batch, self._storage.layers)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [n, D] -> [n, vocab_size]"""
        return self._model.logits(hidden)
