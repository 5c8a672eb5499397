"""Compiled sampling draws what the reference draws: the same noise, the same filters."""

from __future__ import annotations

import pytest
import torch

from harness import same_bits
from kernel_cases import compiled, every_way
from op_cases import bind, randn
from thalweg.ops import sampling
from thalweg.ops.sampling import Draw, SamplingProblem, draw_key

VOCAB = 5000
FILTERS = [
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (0.7, 20, 1.0, 0.0),
    (0.7, 0, 0.9, 0.0),
    (1.3, 0, 1.0, 0.05),
    (1.0, 50, 0.95, 0.02),
    (2.0, 1, 1.0, 0.0),
    (1e-3, 0, 0.5, 0.5),
    (1e-40, 0, 1.0, 0.0),
]


@pytest.mark.parametrize("settings", FILTERS, ids=str)
@pytest.mark.parametrize("vocab", [1, 7, VOCAB])
def test_draws_what_the_reference_draws(
    settings: tuple[float, int, float, float], vocab: int
) -> None:
    problem = SamplingProblem(vocab, torch.float32)
    logits = randn(40, vocab, dtype=torch.float32) * 4
    logits[:, vocab // 2] = -torch.inf if vocab > 1 else 0.0
    draws = [Draw(*settings, draw_key(17, 0, i)) for i in range(40)]
    expected = bind(sampling.OP, problem, "reference")(logits, draws)
    for call in every_way(sampling.OP, problem):
        assert call(logits, draws) == expected
        assert call(logits[3:4], draws[3:4]) == expected[3:4]


def test_ties_take_the_lowest_id() -> None:
    problem = SamplingProblem(9, torch.float32)
    logits = torch.tensor([[0.0, 2, 1, 2, 2, -1, 0, 0, 2]])
    call = compiled(sampling.OP, problem)
    assert call(logits, [Draw(0.0, 0, 1.0, 0.0, 0)]) == [1]
    tokens = {call(logits, [Draw(1.0, 2, 1.0, 0.0, draw_key(i, 0, 0))])[0] for i in range(60)}
    assert tokens == {1, 3}


def test_frequencies_are_the_softmax() -> None:
    problem = SamplingProblem(4, torch.float32)
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0]]).expand(20_000, -1)
    draws = [Draw(1.0, 0, 1.0, 0.0, draw_key(5, 0, i)) for i in range(20_000)]
    tokens = torch.tensor(compiled(sampling.OP, problem)(logits, draws))
    share = tokens.bincount(minlength=4) / 20_000
    assert bool((share - logits[0].softmax(-1)).abs().max() < 0.015)


def test_logprobs() -> None:
    problem = SamplingProblem(VOCAB, torch.float32)
    logits = randn(9, VOCAB, dtype=torch.float32) * 5
    exact = logits.double().log_softmax(-1)
    whole = compiled(sampling.LOGPROBS_OP, problem)(logits)
    assert bool((whole - exact).abs().max() <= 1e-6 * exact.abs().max())
    for call in every_way(sampling.LOGPROBS_OP, problem):
        assert same_bits(call(logits), whole)
        assert same_bits(call(logits[4:5]), whole[4:5])
