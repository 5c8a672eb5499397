from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from thalweg.ops.embedding import Embedding, EmbeddingProblem


def bind(problem: EmbeddingProblem) -> Embedding:
    weight = dense(problem.weight)

    def embedding(token_ids: Tensor) -> Tensor:
        return F.embedding(token_ids, weight)

    return embedding
