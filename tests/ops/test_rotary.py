from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from harness import same_bits
from op_cases import DTYPES, LENGTHS, assert_close, bind, exact_kinds, kinds, randn
from thalweg.config import RopeConfig
from thalweg.ops import rotary
from thalweg.ops.rotary.frequencies import attention_factor, frequencies

N, D = 3, 20
each_kind = pytest.mark.parametrize("kind", kinds(rotary.OP))


def problem(dtype: torch.dtype, rotary_dim: int = 8) -> rotary.RotaryProblem:
    return rotary.RotaryProblem(RopeConfig(rotary_dim, 1e4), 300, dtype, "cpu")


def positions(length: int) -> Tensor:
    return (torch.arange(length, dtype=torch.int32) * 37 % 300)[None]


def turned(x: Tensor, rope_positions: Tensor, rotary_dim: int) -> Tensor:
    """Channel pairs (i, i + half) as complex numbers times exp(i p theta^(-2i/dim)), float64."""
    half = rotary_dim // 2
    pairs = torch.complex(x.double()[..., :half], x.double()[..., half:rotary_dim])
    rates = 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = rope_positions[0].double()[:, None, None] * rates
    y = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([y.real, y.imag, x.double()[..., rotary_dim:]], -1)


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rotary_dim", [8, D], ids=["part", "all"])
def test_is_a_rotation_of_channel_pairs(
    kind: str, dtype: torch.dtype, length: int, rotary_dim: int
) -> None:
    x = randn(length, N, D, dtype=dtype)
    before = x.clone()
    out = bind(rotary.OP, problem(dtype, rotary_dim), kind)(x, positions(length))
    assert out.dtype == dtype and same_bits(x, before)
    angle_error = torch.float32 if dtype == torch.float32 else dtype
    assert_close(out, turned(x, positions(length), rotary_dim), angle_error)
    assert same_bits(out[..., rotary_dim:], x[..., rotary_dim:])


@pytest.mark.parametrize("kind", exact_kinds(rotary.OP))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_do_not_depend_on_the_batch(kind: str, dtype: torch.dtype) -> None:
    call, x, where = (
        bind(rotary.OP, problem(dtype), kind),
        randn(65, N, D, dtype=dtype),
        positions(65),
    )
    whole = call(x, where)
    for rows in ([0], [64], [3, 1], [6, 5, 4, 3, 2, 1, 0], list(range(64, -1, -1))):
        assert same_bits(call(x[rows], where[:, rows]), whole[rows])


SCALINGS: dict[str, dict[str, float]] = {
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256.0,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256.0},
    "yarn with its numbers": {
        "factor": 16.0,
        "original_max_position_embeddings": 512.0,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
        "attention_factor": 1.25,
    },
    "yarn with mscale": {
        "factor": 40.0,
        "original_max_position_embeddings": 4096.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    "yarn not truncated": {
        "factor": 4.0,
        "original_max_position_embeddings": 256.0,
        "truncate": 0.0,
    },
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("theta", [1e4, 5e5])
def test_scaling_rules_are_those_of_transformers(name: str, head_dim: int, theta: float) -> None:
    kind, params = name.split()[0], SCALINGS[name]
    theirs: dict[str, object] = {"rope_type": kind, "rope_theta": theta, **params}
    if "original_max_position_embeddings" in params:
        theirs["original_max_position_embeddings"] = int(params["original_max_position_embeddings"])
    if "truncate" in params:
        theirs["truncate"] = bool(params["truncate"])
    length = int(params.get("original_max_position_embeddings", 256) * params["factor"])
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=length,
        rope_parameters=theirs,
    )
    inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    assert kind in ("linear", "llama3", "yarn")
    rope = RopeConfig(
        head_dim,
        theta,
        kind,  # type: ignore[arg-type]
        tuple(sorted(params.items())),
    )
    ours = frequencies(rope, torch.float32)
    assert float((ours / inv_freq - 1).abs().max()) < 1e-5
    assert attention_factor(rope) == pytest.approx(factor, rel=1e-6)


@each_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_yarn_multiplies_the_table_by_its_factor(kind: str, dtype: torch.dtype) -> None:
    rope = RopeConfig(8, 1e4, "yarn", (("factor", 4.0), ("original_max_position_embeddings", 64.0)))
    x = randn(5, N, 8, dtype=dtype)
    out = bind(rotary.OP, rotary.RotaryProblem(rope, 300, dtype, "cpu"), kind)(x, positions(5))
    growth = out.norm(dim=-1) / x.norm(dim=-1)
    assert_close(growth, torch.full_like(growth, 0.1 * math.log(4) + 1), dtype)


@each_kind
def test_position_zero_turns_nothing(kind: str) -> None:
    x = randn(2, N, D, dtype=torch.float32)
    at_zero = torch.zeros(1, 2, dtype=torch.int32)
    assert same_bits(bind(rotary.OP, problem(torch.float32), kind)(x, at_zero), x)
