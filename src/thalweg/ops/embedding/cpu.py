from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.embedding import Embedding, EmbeddingProblem


def reject(problem: EmbeddingProblem) -> str | None:
    return extension.reason(problem.weight.dtype, problem.weight.device)


def bind(problem: EmbeddingProblem) -> Embedding:
    width = problem.weight.shape[1]
    table = extension.kernels().Embedding(extension.packed(problem.weight))

    def embedding(token_ids: Tensor) -> Tensor:
        assert token_ids.dtype == torch.int32
        ids = token_ids.contiguous()
        out = torch.empty((len(ids), width))
        table.run(ids.data_ptr(), len(ids), out.data_ptr())
        return out

    return embedding
