"""Ops that see one row at a time: embedding, linear, norms, activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from harness import same_bits
from op_cases import (
    DTYPES,
    LENGTHS,
    C,
    P,
    assert_close,
    assert_rows_alone,
    bind,
    exact_kinds,
    kinds,
    poisoned_empty,
    randn,
    strided,
)
from thalweg.ops import embedding, linear, rms_norm, silu_and_mul

if TYPE_CHECKING:
    from thalweg.ops.registry import Op

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_length = pytest.mark.parametrize("length", LENGTHS)


def each_kind(op: Op[P, C]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds(op))


def test_poisoned_memory_shows() -> None:
    with poisoned_empty():
        assert bool(torch.empty(3).isnan().all())
        assert bool(torch.empty_like(torch.zeros(2)).isnan().all())
        assert bool(torch.zeros(3).new_empty(2).isnan().all())


@each_kind(embedding.OP)
@each_dtype
def test_embedding_copies_rows(kind: str, dtype: torch.dtype) -> None:
    weight = randn(40, 12, dtype=dtype)
    ids = torch.tensor([39, 0, 7, 7, 39], dtype=torch.int32)
    out = bind(embedding.OP, embedding.EmbeddingProblem(weight), kind)(ids)
    assert same_bits(out, weight[[39, 0, 7, 7, 39]])


@each_kind(linear.OP)
@each_dtype
@each_length
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_the_product(kind: str, dtype: torch.dtype, length: int, bias: bool) -> None:
    weight, x = randn(37, 65, dtype=dtype), randn(length, 65, dtype=dtype, seed=1)
    offset = randn(37, dtype=dtype, seed=2) if bias else None
    out = bind(linear.OP, linear.LinearProblem(weight, offset), kind)(x)
    expected = torch.einsum("tk,nk->tn", x.double(), weight.double())
    assert out.dtype == dtype
    assert_close(out, expected + (0 if offset is None else offset.double()), dtype)
    assert_close(
        bind(linear.OP, linear.LinearProblem(weight, offset), kind)(strided(x)), out, dtype
    )


@pytest.mark.parametrize("kind", exact_kinds(linear.OP))
@each_dtype
@pytest.mark.parametrize("width", [16, 63, 130])
def test_linear_rows_do_not_depend_on_the_batch(kind: str, dtype: torch.dtype, width: int) -> None:
    call = bind(linear.OP, linear.LinearProblem(randn(33, width, dtype=dtype)), kind)
    x = randn(65, width, dtype=dtype, seed=1)
    assert_rows_alone(lambda rows: call(x[rows]), 65)
    assert_rows_alone(lambda rows: call(strided(x[rows])), 65)
    assert same_bits(call(strided(x)), call(x))


def norm_in_float64(x: Tensor, problem: rms_norm.RMSNormProblem) -> Tensor:
    weight = problem.weight.double() + (1 if problem.zero_centered else 0)
    return x.double() / torch.sqrt((x.double() ** 2).mean(-1, keepdim=True) + problem.eps) * weight


@each_kind(rms_norm.OP)
@each_dtype
@each_length
@pytest.mark.parametrize("zero_centered", [True, False])
def test_rms_norm(kind: str, dtype: torch.dtype, length: int, zero_centered: bool) -> None:
    problem = rms_norm.RMSNormProblem(randn(37, dtype=dtype), 1e-3, zero_centered)
    x = randn(length, 37, dtype=dtype, seed=1)
    out = bind(rms_norm.OP, problem, kind)(x)
    assert out.dtype == dtype
    assert_close(out, norm_in_float64(x, problem), dtype)
    heads = bind(rms_norm.OP, problem, kind)(x.view(length, 1, 37).expand(-1, 2, -1))
    assert heads.shape == (length, 2, 37)
    assert_close(heads[:, 1], norm_in_float64(x, problem), dtype)


@each_kind(rms_norm.ADD_OP)
@each_dtype
@each_length
def test_add_rms_norm(kind: str, dtype: torch.dtype, length: int) -> None:
    problem = rms_norm.RMSNormProblem(randn(37, dtype=dtype), 1e-6, True)
    hidden, residual = (randn(length, 37, dtype=dtype, seed=s) for s in (1, 2))
    before = hidden.clone(), residual.clone()
    normed, total = bind(rms_norm.ADD_OP, problem, kind)(hidden, residual)
    assert same_bits(total, before[0] + before[1])
    assert_close(normed, norm_in_float64(total, problem), dtype)
    assert same_bits(hidden, before[0]) and same_bits(residual, before[1]), "inputs are read only"


@each_kind(rms_norm.GATED_OP)
@each_dtype
@each_length
def test_gated_rms_norm(kind: str, dtype: torch.dtype, length: int) -> None:
    """x is the recurrence's float32, also where the model is bfloat16."""
    problem = rms_norm.RMSNormProblem(randn(24, dtype=dtype), 1e-6)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x, z = randn(length, 4, 24, dtype=wide, seed=1), randn(length, 4, 24, dtype=dtype, seed=2)
    out = bind(rms_norm.GATED_OP, problem, kind)(x, z)
    assert out.dtype == dtype and out.shape == z.shape
    gate = z.double() / (1 + torch.exp(-z.double()))
    assert_close(out, norm_in_float64(x, problem) * gate, dtype)


@each_kind(rms_norm.GATED_OP)
def test_norm_of_huge_and_of_zero_rows_is_finite(kind: str) -> None:
    """cases.md N6: a large recurrent readout meets the gated norm in float32, not in half."""
    problem = rms_norm.RMSNormProblem(torch.ones(24, dtype=torch.bfloat16), 1e-6)
    x = torch.stack([torch.full((24,), 1e8), torch.zeros(24), randn(24, dtype=torch.float32) * 1e5])
    out = bind(rms_norm.GATED_OP, problem, kind)(x, torch.ones(3, 24, dtype=torch.bfloat16))
    assert bool(out.isfinite().all()) and out[1].count_nonzero() == 0
    assert_close(out[0].float(), torch.full((24,), 0.7310586), torch.bfloat16)


@pytest.mark.parametrize("kind", exact_kinds(rms_norm.OP))
@each_dtype
@pytest.mark.parametrize("width", [16, 37, 130])
def test_norm_rows_do_not_depend_on_the_batch(kind: str, dtype: torch.dtype, width: int) -> None:
    problem = rms_norm.RMSNormProblem(randn(width, dtype=dtype), 1e-6, True)
    x, z = (randn(65, width, dtype=dtype, seed=s) for s in (1, 2))
    plain = bind(rms_norm.OP, problem, kind)
    gated = bind(rms_norm.GATED_OP, problem, kind)
    add = bind(rms_norm.ADD_OP, problem, kind)
    assert_rows_alone(lambda rows: plain(x[rows]), 65)
    assert_rows_alone(lambda rows: plain(strided(x[rows])), 65)
    assert_rows_alone(lambda rows: gated(x[rows], z[rows]), 65)
    assert_rows_alone(lambda rows: gated(strided(x[rows]), strided(z[rows])), 65)
    assert_rows_alone(lambda rows: add(x[rows], z[rows])[0], 65)


@each_kind(silu_and_mul.OP)
@each_dtype
@each_length
def test_silu_and_mul(kind: str, dtype: torch.dtype, length: int) -> None:
    problem = silu_and_mul.SiluAndMulProblem(33, dtype)
    x = randn(length, 66, dtype=dtype, seed=1) * 3
    gate, up = x.double()[:, :33], x.double()[:, 33:]
    out = bind(silu_and_mul.OP, problem, kind)(x.clone())
    assert out.dtype == dtype
    assert_close(out, gate / (1 + torch.exp(-gate)) * up, dtype)


@pytest.mark.parametrize("kind", exact_kinds(silu_and_mul.OP))
@each_dtype
def test_silu_rows_do_not_depend_on_the_batch(kind: str, dtype: torch.dtype) -> None:
    call = bind(silu_and_mul.OP, silu_and_mul.SiluAndMulProblem(33, dtype), kind)
    x = randn(65, 66, dtype=dtype, seed=1)
    assert_rows_alone(lambda rows: call(x[rows]), 65)
    assert_rows_alone(lambda rows: call(strided(x[rows])), 65)


@each_kind(linear.OP)
def test_no_rows_are_no_rows(kind: str) -> None:
    """A pass may want no logits."""
    call = bind(linear.OP, linear.LinearProblem(randn(5, 16, dtype=torch.float32)), kind)
    assert call(torch.zeros(0, 16)).shape == (0, 5)


@each_kind(rms_norm.OP)
def test_no_rows_to_norm(kind: str) -> None:
    call = bind(rms_norm.OP, rms_norm.RMSNormProblem(torch.ones(16), 1e-6), kind)
    assert call(torch.zeros(0, 16)).shape == (0, 16)


@each_kind(silu_and_mul.OP)
def test_no_rows_to_activate(kind: str) -> None:
    call = bind(silu_and_mul.OP, silu_and_mul.SiluAndMulProblem(8, torch.float32), kind)
    assert call(torch.zeros(0, 16)).shape == (0, 8)
