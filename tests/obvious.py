"""Sampling as one would explain it: Python floats, lists and loops, from the options' own words."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.config import SamplingParams

WORD = 1 << 64


def edited(
    logits: Sequence[float],
    params: SamplingParams,
    *,
    prompt: Sequence[int],
    answer: Sequence[int],
    stop_ids: frozenset[int] = frozenset(),
) -> list[float]:
    """Bias, repetition penalty, presence and frequency penalties, bans: in this order."""
    result = list(logits)
    for token, bias in params.logit_bias.items():
        result[token] += bias
    for token in {*prompt, *answer}:
        if result[token] > 0:
            result[token] /= params.repetition_penalty
        else:
            result[token] *= params.repetition_penalty
    for token, count in Counter(answer).items():
        result[token] -= params.presence_penalty + count * params.frequency_penalty
    if len(answer) < params.min_tokens:
        for token in stop_ids:
            result[token] = -math.inf
    return result


def scores(logits: Sequence[float], params: SamplingParams, key: int) -> dict[int, float]:
    """What each token that may be drawn is ranked by; the highest is drawn, ties to the lowest."""
    if params.temperature == 0:
        return dict(enumerate(logits))
    scaled = [logit / params.temperature for logit in logits]
    kept = [i for i in range(len(scaled)) if scaled[i] > -math.inf]
    kept.sort(key=lambda i: (-scaled[i], i))
    if params.top_k:
        kept = kept[: params.top_k]
    top = scaled[kept[0]]
    weights = [math.exp(scaled[i] - top) for i in kept]
    probs = [weight / math.fsum(weights) for weight in weights]
    if params.top_p < 1:
        num, mass = 0, 0.0
        while mass < params.top_p and num < len(kept):
            mass += probs[num]
            num += 1
        kept, probs = kept[:num], probs[:num]
    kept = [i for i, prob in zip(kept, probs, strict=True) if prob >= params.min_p * probs[0]]
    return {i: scaled[i] - math.log(-math.log(uniform(key, i))) for i in kept}


def best(scores: dict[int, float]) -> int:
    return min(scores, key=lambda i: (-scores[i], i))


def margin(scores: dict[int, float]) -> float:
    """How far the first is before the second."""
    first, *rest = sorted(scores.values(), reverse=True)
    return first - rest[0] if rest else math.inf


def uniform(key: int, token: int) -> float:
    """In (0, 1), from SplitMix64's finaliser."""
    return ((_mixed(token * 0x9E3779B97F4A7C15 + key) >> 11) + 0.5) / 2**53


def logprobs(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    total = math.log(math.fsum(math.exp(logit - top) for logit in logits))
    return [logit - top - total for logit in logits]


def _mixed(x: int) -> int:
    x %= WORD
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)
