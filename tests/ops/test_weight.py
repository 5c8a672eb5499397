"""Weights in the form they are stored in: the same values, whatever is done to them first."""

from __future__ import annotations

import gguf
import pytest
import torch
from torch import Tensor

from any_blocks import SCALES, any_blocks
from harness import exact_kernels, same_bits
from op_cases import bind, randn
from thalweg.ops import embedding, extension, linear, moe
from thalweg.ops.weight import Blocks, Matrix, Stored, concatenated, dense, values_of

K = 512
each_type = pytest.mark.parametrize("name", SCALES)


def blocks(name: str, *rows: int) -> Blocks:
    size, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    count = int(torch.tensor(rows).prod()) * K // size
    return Blocks(torch.from_numpy(any_blocks(name, count).reshape(*rows, -1)), name)


def matrix(*parts: Stored, dtype: torch.dtype = torch.float32) -> Matrix:
    return Matrix(parts, dtype, torch.device("cpu"))


@each_type
def test_rows_columns_and_shapes_are_those_of_the_values(name: str) -> None:
    stored = blocks(name, 6, 5)
    assert stored.shape == (6, 5, K)
    values = stored.dense()
    rows = torch.tensor([4, 0, 0, 3])
    assert same_bits(values_of(stored.index_select(0, rows)), values[rows])
    flat = stored.reshape((30, K))
    assert isinstance(flat, Blocks) and same_bits(flat.dense(), values.view(30, K))
    assert same_bits(values_of(stored.reshape((30, 2, K // 2))), values.view(30, 2, K // 2))
    assert same_bits(stored.unbind()[3].dense(), values[3])
    heads = torch.arange(K).view(-1, 64).flip(0).flatten()
    moved = flat.index_select(1, heads)
    assert isinstance(moved, Blocks) and same_bits(moved.dense(), values.view(30, K)[:, heads])
    for order in (torch.arange(K).flip(0), torch.arange(16, K), torch.arange(5)):
        chosen = flat.index_select(1, order)
        assert isinstance(chosen, Tensor) and same_bits(chosen, values.view(30, K)[:, order])


def test_parts_are_joined_as_blocks_where_they_can_be() -> None:
    one, two, other = blocks("Q4_K", 3), blocks("Q4_K", 4), blocks("Q6_K", 2)
    joined = concatenated([one, two])
    assert isinstance(joined, Blocks)
    assert same_bits(joined.dense(), torch.cat([one.dense(), two.dense()]))
    mixed = concatenated([one, other])
    assert isinstance(mixed, Tensor) and mixed.shape == (5, K)


@pytest.mark.parametrize("kind", exact_kernels())
@each_type
def test_every_kernel_computes_with_the_values(name: str, kind: str) -> None:
    """A product with parts of several types, a table, and experts, with the bits that the
    same values in float32 give where a kernel does not know the blocks. The compiled kernels are
    compared with one matrix of each type in tests/kernels."""
    weight = matrix(blocks(name, 40), blocks("Q8_0", 24), randn(9, K, dtype=torch.bfloat16))
    x = randn(5, K, dtype=torch.float32)
    out = bind(linear.OP, linear.LinearProblem(weight), kind)(x)
    wanted = x.double() @ weight.dense.double().T
    assert float((out - wanted).norm() / wanted.norm()) < (2e-2 if kind == "cpu" else 1e-6)
    table = matrix(blocks(name, 40))
    ids = torch.arange(40, dtype=torch.int32)
    rows = bind(embedding.OP, embedding.EmbeddingProblem(table), kind)(ids)
    assert same_bits(rows, dense(table))


@pytest.mark.parametrize("kind", exact_kernels())
def test_experts_in_blocks(kind: str) -> None:
    down = Blocks(blocks("Q8_0", 4 * K).data.reshape(4, K, -1)[..., : 34 * 2], "Q8_0")
    gate_up = blocks("Q4_K", 4, 128)
    problem = moe.MoEProblem(
        matrix(randn(4, K, dtype=torch.float32)), matrix(gate_up), matrix(down), 2, True
    )
    plain = moe.MoEProblem(
        dense(problem.router), dense(problem.gate_up), dense(problem.down), 2, True
    )
    x = randn(3, K, dtype=torch.float32) / 1000
    out = bind(moe.OP, problem, kind)(x)
    wanted = bind(moe.OP, plain, "reference")(x)
    error = (out - wanted).norm() / wanted.norm()
    assert bool(error < (5e-2 if kind == "cpu" else 1e-6)), float(error)


@pytest.mark.skipif("cpu" not in exact_kernels(), reason="no compiled kernels")
def test_a_tied_matrix_is_packed_once() -> None:
    weight = matrix(blocks("Q4_K", 40))
    assert extension.packed(weight) is extension.packed(weight)
    assert extension.packed(matrix(*weight.parts)) is not extension.packed(weight)
