from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import same_bits
from op_cases import LENGTHS, assert_close, bind, randn
from thalweg.ops import sampling
from thalweg.ops.sampling import Draw, SamplingProblem, draw_key, noise
from thalweg.ops.sampling.reference import _candidates, sample_row

INF = math.inf
MASK = (1 << 64) - 1


def draw(
    temperature: float = 1.0,
    *,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    key: int = 0,
) -> Draw:
    return Draw(temperature, top_k, top_p, min_p, key)


def sample(logits: Tensor, draws: list[Draw]) -> list[int]:
    problem = SamplingProblem(logits.shape[1], logits.dtype)
    return bind(sampling.OP, problem, sampling.OP.kernels[0].name)(logits, draws)


# Greedy


def test_greedy_takes_the_largest_and_the_lowest_id_of_equals() -> None:
    logits = torch.tensor([[1.0, 3, 2, 3], [-INF, -5, -5, -INF], [0, 0, 0, 0], [0.0, -0.0, -1, -1]])
    assert sample(logits, [draw(0)] * 4) == [1, 1, 0, 0]


def test_greedy_ignores_filters_and_key() -> None:
    logits = randn(1, 50, dtype=torch.float32)
    best = int(logits.argmax())
    assert sample(logits, [draw(0, top_k=1, top_p=0.1, min_p=0.9, key=5)]) == [best]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("temperature", [1e-3, 1e-6, 1e-30, 1e-45, 1e-300, 5e-324])
def test_temperature_towards_zero_becomes_greedy(dtype: torch.dtype, temperature: float) -> None:
    """Whatever overflows on the way: the most likely token stays, and ties stay ties."""
    logits = torch.tensor([[-7.0, 40, 250, 249, -INF], [-30, -9, -8, -9, -300]], dtype=dtype)
    for key in range(20):
        assert sample(logits, [draw(temperature, key=key)] * 2) == [2, 2]
    tied = torch.tensor([[5.0, 9, 9, 1]], dtype=dtype)
    seen = {sample(tied, [draw(temperature, key=key)])[0] for key in range(40)}
    assert seen == {1, 2}


# Filters


def obvious_candidates(logits: list[float], d: Draw) -> tuple[set[int], bool]:
    """The README's definition, one id at a time; and whether a threshold is nearly met."""
    ids = [i for i, x in enumerate(logits) if x > -INF]
    ids.sort(key=lambda i: (-logits[i], i))
    if d.top_k:
        ids = ids[: d.top_k]
    top = logits[ids[0]]
    weights = {i: math.exp((logits[i] - top) / d.temperature) for i in ids}
    total, mass, kept, near = math.fsum(weights.values()), 0.0, list[int](), False
    for i in ids:
        if d.top_p < 1 and mass >= d.top_p:
            break
        kept.append(i)
        mass += weights[i] / total
        near |= d.top_p < 1 and abs(mass - d.top_p) < 1e-6
    near |= d.min_p > 0 and any(abs(weights[i] - d.min_p) < 1e-6 for i in kept)
    return {i for i in kept if weights[i] >= d.min_p}, near


levels = st.sampled_from([-INF, -3.0, -1.0, 0.0, 0.5, 0.75, 2.0, 4.0])
any_logits = st.lists(
    st.one_of(levels, st.integers(-1280, 1280).map(lambda i: i / 64)), min_size=1, max_size=12
)  # on a grid: subtracting the largest is exact, so ties stay what they are


@settings(max_examples=400, deadline=None)
@given(
    any_logits,
    st.sampled_from([0.25, 1.0, 3.0]),
    st.integers(0, 13),
    st.sampled_from([0.0101, 0.3, 0.507, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.0503, 0.21, 0.703, 1.0]),
)
def test_filters_leave_what_their_definition_leaves(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    assume(max(logits) > -INF)
    d = draw(temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    kept, near = obvious_candidates(logits, d)
    assume(not near)
    row = torch.tensor(logits, dtype=torch.float32)
    assert {*_candidates((row - row.max()) / temperature, d).tolist()} == kept
    assert sample_row(row, d) in kept


def test_top_k_cuts_ties_at_the_edge_by_id() -> None:
    row = torch.tensor([1.0, 5, 1, 1, 1])
    assert drawable(row, top_k=3) == {0, 1, 2}
    assert drawable(row, top_k=1) == {1}
    assert drawable(row, top_k=99) == {0, 1, 2, 3, 4}


def test_top_p_keeps_the_token_that_crosses_it() -> None:
    row = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    assert drawable(row, top_p=0.49) == {0}
    assert drawable(row, top_p=0.51) == {0, 1}
    assert drawable(row, top_p=0.8) == {0, 1, 2}, "of equals the lowest id first"
    assert drawable(row, top_p=1e-9) == {0}, "never empty"


def test_top_p_counts_what_top_k_left() -> None:
    row = torch.tensor([0.3, 0.3, 0.2, 0.2]).log()
    assert drawable(row, top_k=2, top_p=0.45) == {0}
    assert drawable(row, top_k=2, top_p=0.55) == {0, 1}


def test_min_p_is_relative_to_the_most_likely() -> None:
    row = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert drawable(row, min_p=0.6) == {0, 1}
    assert drawable(row, min_p=1.0) == {0}
    assert drawable(torch.zeros(4), min_p=1.0) == {0, 1, 2, 3}


def drawable(row: Tensor, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> set[int]:
    keys = (draw_key(3, 0, t) for t in range(400))
    return {
        sample_row(row, draw(1.0, top_k=top_k, top_p=top_p, min_p=min_p, key=key)) for key in keys
    }


def test_banned_tokens_are_never_drawn() -> None:
    row = torch.tensor([-INF, 0, -INF, -50, -INF])
    assert drawable(row) == {1} and drawable(row, top_k=4) == {1}
    assert drawable(torch.tensor([-INF, -INF, -1e30])) == {2}
    assert drawable(torch.tensor([-INF, -INF, -1e30]), top_p=0.5, min_p=0.5) == {2}


# Draws


def frequencies(row: Tensor, keys: list[int]) -> list[int]:
    counts = [0] * len(row)
    for key in keys:
        counts[sample_row(row, draw(key=key))] += 1
    return counts


@pytest.mark.parametrize("seed", [0, 1, MASK])
@pytest.mark.parametrize("what", ["tokens", "samples"])
def test_draws_have_the_frequencies_of_softmax(seed: int, what: str) -> None:
    """Chi-square over 3000 fixed keys, 7 degrees of freedom: 24.3 is the 0.1 % point."""
    row = torch.tensor([0.0, 1, -1, 0.5, 2, -3, 0, 1.5])
    keys = [draw_key(seed, 0, i) if what == "tokens" else draw_key(seed, i, 0) for i in range(3000)]
    expected = row.double().softmax(-1) * len(keys)
    counts = torch.tensor(frequencies(row, keys), dtype=torch.float64)
    assert float(((counts - expected) ** 2 / expected).sum()) < 24.3


def test_draws_after_filters_have_renormalised_frequencies() -> None:
    row = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    counts = [0] * 4
    for t in range(3000):
        counts[sample_row(row, draw(top_k=2, key=draw_key(9, 0, t)))] += 1
    assert counts[2:] == [0, 0]
    assert abs(counts[0] - 3000 * 4 / 7) < 3.3 * math.sqrt(3000 * 12 / 49)


def test_consecutive_draws_are_independent() -> None:
    """Pairs of neighbouring tokens' draws fall evenly into all 16 cells."""
    drawn = [sample_row(torch.zeros(4), draw(key=draw_key(5, 0, t))) for t in range(3201)]
    cells = [0] * 16
    for a, b in pairwise(drawn):
        cells[4 * a + b] += 1
    assert sum((c - 200) ** 2 / 200 for c in cells) < 37.7  # 15 degrees of freedom, 0.1 %


def test_a_draw_does_not_depend_on_the_batch() -> None:
    logits = randn(65, 100, dtype=torch.float32)
    draws = [draw(0.5 + i % 3, top_k=i % 7, key=draw_key(i, 0, 0)) for i in range(65)]
    together = sample(logits, draws)
    assert together == [sample(logits[i : i + 1], [draws[i]])[0] for i in range(65)]
    order = list(range(64, -1, -1))
    assert sample(logits[order], [draws[i] for i in order]) == [together[i] for i in order]


def test_filters_do_not_change_the_noise_of_what_they_leave() -> None:
    """Noise is keyed by vocabulary id: banning a token that was not drawn changes nothing."""
    row = randn(30, dtype=torch.float32)
    for t in range(50):
        key = draw_key(1, 0, t)
        token = sample_row(row, draw(key=key))
        banned = row.clone()
        banned[(token + 1 + t % 29) % 30] = -INF
        assert sample_row(banned, draw(key=key)) == token


def test_logits_are_read_only() -> None:
    logits = randn(2, 9, dtype=torch.float32)
    before = logits.clone()
    sample(logits, [draw(0.5, top_k=3, top_p=0.5, min_p=0.1), draw(0)])
    assert same_bits(logits, before)


# Noise


def test_every_part_of_the_name_gives_other_noise() -> None:
    names = [(s, i, t) for s in (0, 1, 2, MASK, 1 << 63) for i in range(4) for t in range(6)]
    assert len({draw_key(*name) for name in names}) == len(names)
    ids = torch.arange(64)
    values = {tuple(noise.uniforms(draw_key(*name), ids).tolist()) for name in names}
    assert len(values) == len(names)
    assert len({x for row in values for x in row}) == 64 * len(names), "no value twice"


@given(st.integers(0, MASK))
def test_python_and_tensor_arithmetic_agree(x: int) -> None:
    signed = x - (1 << 64) if x >> 63 else x
    assert int(noise._mix_tensor(torch.tensor(signed))) & MASK == noise._mix(x)


def unmix(y: int) -> int:
    """The inverse of SplitMix64's finaliser."""

    def unshift(y: int, shift: int) -> int:
        x = y
        for _ in range(64 // shift):
            x = y ^ (x >> shift)
        return x

    y = unshift(y, 31)
    y = unshift(y * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK, 27)
    return unshift(y * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK, 30)


@given(st.integers(0, MASK))
def test_the_finaliser_is_a_bijection(x: int) -> None:
    assert unmix(noise._mix(x)) == x


@pytest.mark.parametrize("bits", [0, 1, MASK >> 1, MASK - 4095, MASK - 1, MASK])
def test_uniforms_are_strictly_between_zero_and_one(bits: int) -> None:
    """At both ends of all 64-bit numbers: Gumbel noise is finite."""
    u = noise.uniforms(unmix(bits), torch.tensor([0]))
    assert 0 < float(u) < 1
    assert math.isfinite(float(-(-u.log()).log()))
    assert abs(float(u) - bits / 2**64) < 2**-50


def test_uniforms_are_uniform() -> None:
    u = noise.uniforms(draw_key(7, 0, 0), torch.arange(100_000))
    assert abs(float(u.mean()) - 0.5) < 3.3 / math.sqrt(12 * 100_000)
    counts = (u * 20).long().bincount(minlength=20).double()
    assert float(((counts - 5000) ** 2 / 5000).sum()) < 43.8  # 19 degrees of freedom, 0.1 %


# Log-probabilities


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_logprobs_are_log_softmax(dtype: torch.dtype, length: int) -> None:
    logits = randn(length, 70, dtype=dtype) * 4
    call = bind(
        sampling.LOGPROBS_OP, SamplingProblem(70, dtype), sampling.LOGPROBS_OP.kernels[0].name
    )
    out = call(logits)
    assert_close(out, (logits.double().exp() / logits.double().exp().sum(-1, True)).log(), dtype)
    for i in range(0, length, 7):
        assert same_bits(call(logits[i : i + 1]), out[i : i + 1])
    assert same_bits(call(logits.flip(0)), out.flip(0))
