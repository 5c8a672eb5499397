from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops.sampling.noise import uniforms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.ops.sampling import Draw, Largest, LogProbs, Sample, SamplingProblem

COLDEST = 1e-30
"""Temperatures below it leave what it leaves: the largest logit, and no quotient of 0 by 0."""


def bind(problem: SamplingProblem) -> Sample:
    def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
        return [sample_row(row, draw) for row, draw in zip(logits, draws, strict=True)]

    return sample


def bind_largest(problem: SamplingProblem) -> Largest:
    def largest(logits: Tensor) -> list[float]:
        return logits.amax(-1).tolist()

    return largest


def bind_logprobs(problem: SamplingProblem) -> LogProbs:
    def logprobs(logits: Tensor) -> Tensor:
        out = torch.empty_like(logits)
        for i in range(len(logits)):
            out[i] = logits[i].clone().log_softmax(-1)
        return out

    return logprobs


def sample_row(logits: Tensor, draw: Draw) -> int:
    """logits: [vocab_size] -> the id of the largest logit plus noise, of those the filters keep."""
    if draw.temperature == 0:
        return _first_largest(logits)
    logits = (logits.clone() - logits.max()) / max(draw.temperature, COLDEST)  # at most 0
    ids = _candidates(logits, draw)
    noise = -(-uniforms(draw.key, ids).log()).log()  # Gumbel: the argmax is a draw from softmax
    return int(ids[_first_largest(logits[ids].double() + noise)])


def top_tokens(logprobs: Tensor, k: int) -> list[tuple[int, float]]:
    """The k largest with their ids, descending, ties by ascending id. logprobs: [vocab_size]"""
    if k == 0:
        return []
    ids = _top_k(logprobs, min(k, len(logprobs))).nonzero()[:, 0]
    order = logprobs[ids].sort(descending=True, stable=True)
    return list(zip(ids[order.indices].tolist(), order.values.tolist(), strict=True))


def _candidates(logits: Tensor, draw: Draw) -> Tensor:
    """Ascending ids that top_k, then top_p, then min_p leave."""
    kept = torch.isfinite(logits)
    if 0 < draw.top_k < len(logits):
        kept &= _top_k(logits, draw.top_k)
    ids = kept.nonzero()[:, 0]
    if draw.top_p == 1 and draw.min_p == 0:
        return ids
    probs = logits[ids].softmax(-1)
    if draw.top_p < 1:
        order = probs.sort(descending=True, stable=True)
        before = order.values.cumsum(-1) - order.values  # mass of the more likely ones
        chosen = order.indices[before < draw.top_p].sort().values
        ids, probs = ids[chosen], probs[chosen]
    return ids[probs >= draw.min_p * probs.max()]


def _top_k(logits: Tensor, k: int) -> Tensor:
    """A mask of the k largest; of equal ones at the edge the lowest ids."""
    edge = logits.topk(k).values[-1]
    above, equal = logits > edge, logits == edge
    return above | (equal & (equal.cumsum(-1) <= k - above.sum()))


def _first_largest(x: Tensor) -> int:
    return int((x == x.max()).nonzero()[0, 0])
