"""Runs a model over a batch. Knows tensors and nothing of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.batch import ForwardBatch
    from thalweg.memory.manager import BlockCopy
    from thalweg.memory.storage import CacheStorage, LayerCache


class Model(Protocol):
    """All that the runner sees of a model."""

    def __call__(self, batch: ForwardBatch, caches: list[LayerCache]) -> Tensor:
        """-> the final hidden state of every row, [T, hidden_size]"""

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [L, hidden_size] -> [L, vocab_size]"""


class Runner:
    def __init__(self, model: Model, storage: CacheStorage) -> None:
        self._model = model
        self._storage = storage

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, copies: Sequence[BlockCopy] = ()) -> Tensor:
        """Make the copies, then run the pass. -> hidden states whose logits are wanted, [L, D]"""
        self._storage.copy(copies)
        hidden = self._model(batch, self._storage.layers)
        return hidden[batch.logits_rows]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [n, D] -> [n, vocab_size]"""
        return self._model.logits(hidden)
