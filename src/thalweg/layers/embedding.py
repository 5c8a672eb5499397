"""The two ends of a model: token ids in, logits out. Tied models use one matrix for both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.ops import embedding, linear

if TYPE_CHECKING:
    from thalweg.layers.build import BuildContext
    from thalweg.ops.weight import Weight


class Embedding(nn.Module):
    def __init__(self, weight: Weight, build: BuildContext) -> None:
        """weight: [vocab_size, hidden_size]"""
        super().__init__()
        self.lookup = build.kernels.bind(embedding.OP, embedding.EmbeddingProblem(weight))

    def forward(self, token_ids: Tensor) -> Tensor:
        """token_ids: [T] -> [T, hidden_size]"""
        return self.lookup(token_ids)


class LMHead(nn.Module):
    def __init__(self, weight: Weight, build: BuildContext) -> None:
        """weight: [vocab_size, hidden_size]"""
        super().__init__()
        self.product = build.kernels.bind(linear.OP, linear.LinearProblem(weight))

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden: [L, hidden_size] -> [L, vocab_size]"""
        return self.product(hidden)
