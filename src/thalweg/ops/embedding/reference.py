from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.embedding import Embedding, EmbeddingProblem


def bind(problem: EmbeddingProblem) -> Embedding:
    weight = dense(problem.weight)

    def embedding(token_ids: Tensor) -> Tensor:
        out = weight.new_empty(len(token_ids), weight.shape[1])
        for t, token in enumerate(token_ids.tolist()):
            out[t] = weight[token]
        return out

    return embedding
