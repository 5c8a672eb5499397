"""The losses of one batch: next token, first draft and chained draft.

Column p of the model's output predicts token p + 1. The draft row at column p joins the embedding
of token p + 1 with the normed hidden state at p and predicts token p + 2. A chained row joins the
embedding of token p + 2 with the draft row's own output and predicts token p + 3; it attends to
draft rows up to p and to itself, as it does when drafting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import Rows, TinyModel

if TYPE_CHECKING:
    from .batches import Batch


@dataclass(frozen=True, slots=True)
class LossWeights:
    draft: float = 0.3
    chained: float = 0.0  # 0 skips the chained draft


@dataclass(frozen=True, slots=True)
class Losses:
    total: Tensor  # scalar, with gradient
    draft: float
    by_task: dict[int, float]  # next-token loss of the tokens the model writes


def ahead(x: Tensor, steps: int, fill: float = 0) -> Tensor:
    """x `[B, T]` moved left: column p holds what stood at p + steps."""
    return F.pad(x[:, steps:], (0, steps), value=fill)


def _weights(batch: Batch, steps: int) -> Tensor:
    """Loss weight of predicting the token `steps` ahead; 0 when it is in another document."""
    same = ahead(batch.documents, steps, fill=-1) == batch.documents
    return ahead(batch.weights, steps) * same


def _cross_entropy(
    model: TinyModel, hidden: Tensor, batch: Batch, steps: int
) -> tuple[Tensor, ...]:
    """Mean loss of predicting `steps` ahead, and for each chosen token its loss and its place.

    Only columns with a weight are projected to the vocabulary: the projection is a large part of
    the cost of so small a model.
    """
    weights = _weights(batch, steps)
    chosen = weights > 0
    logits = model.logits(hidden[chosen])
    each = F.cross_entropy(logits, ahead(batch.tokens, steps)[chosen], reduction="none")
    weights = weights[chosen]
    return (each * weights).sum() / weights.sum(), each, chosen


def batch_losses(model: TinyModel, batch: Batch, weights: LossWeights) -> Losses:
    rows = Rows.from_documents(batch.documents)
    embeds = model.model.embed_tokens
    hidden = model.model(batch.tokens, rows)
    total, each, chosen = _cross_entropy(model, hidden, batch, 1)
    joined = model.mtp.join(embeds(ahead(batch.tokens, 1)), hidden)
    drafted = model.mtp(joined, rows)
    draft = _cross_entropy(model, drafted, batch, 2)[0]
    total = total + weights.draft * draft
    if weights.chained:
        rejoined = model.mtp.join(embeds(ahead(batch.tokens, 2)), drafted)
        chained = model.mtp(rejoined, rows, model.mtp.keys_values(joined))
        total = total + weights.chained * _cross_entropy(model, chained, batch, 3)[0]
    written = ahead(batch.weights, 1)[chosen] == 1
    tasks, each = ahead(batch.tasks, 1)[chosen][written], each.detach()[written]
    sums = torch.bincount(tasks, each)
    counts = torch.bincount(tasks)
    by_task = {int(t): float(sums[t] / counts[t]) for t in counts.nonzero()[:, 0]}
    return Losses(total, float(draft.detach()), by_task)
