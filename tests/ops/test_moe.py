from __future__ import annotations

import pytest
import torch
from torch import Tensor

from op_cases import (
    DTYPES,
    LENGTHS,
    assert_close,
    assert_rows_alone,
    bind,
    exact_kinds,
    kinds,
    randn,
    strided,
)
from thalweg.ops import moe
from thalweg.ops.moe import MoEProblem, SharedExpert
from thalweg.ops.weight import dense

E, D, I = 8, 20, 12  # noqa: E741  # as in the maths
each_kind = pytest.mark.parametrize("kind", kinds(moe.OP))


def problem(
    dtype: torch.dtype, *, shared: bool = True, norm: bool = True, hidden: int = D
) -> MoEProblem:
    def weight(*shape: int, seed: int) -> Tensor:
        return (randn(*shape, seed=seed) * shape[-1] ** -0.5).to(dtype)

    expert = SharedExpert(
        weight(2 * 9, hidden, seed=4), weight(hidden, 9, seed=5), weight(1, hidden, seed=6)
    )
    return MoEProblem(
        weight(E, hidden, seed=1) * 3,
        weight(E, 2 * I, hidden, seed=2),
        weight(E, hidden, I, seed=3),
        2,
        norm,
        expert if shared else None,
    )


def expected(x: Tensor, p: MoEProblem) -> Tensor:
    """Every expert on every row in float64, weighted by a dense matrix that is mostly zero."""
    x = x.double()
    probs = torch.softmax(x @ dense(p.router).double().T, -1)
    weights = torch.zeros_like(probs)
    for t, row in enumerate(probs.tolist()):
        for e in sorted(range(len(row)), key=lambda e: (-row[e], e))[: p.top_k]:
            weights[t, e] = row[e]
    if p.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    y = mlp(x[None], dense(p.gate_up).double(), dense(p.down).double())  # [E, T, D]
    out = torch.einsum("te,etd->td", weights, y)
    if p.shared is not None:
        gate = torch.sigmoid(x @ dense(p.shared.gate).double().T)
        out = out + gate * mlp(x, dense(p.shared.gate_up).double(), dense(p.shared.down).double())
    return out


def mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = (x @ gate_up.transpose(-1, -2)).chunk(2, -1)
    return gate / (1 + torch.exp(-gate)) * up @ down.transpose(-1, -2)


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_is_the_weighted_sum_of_experts(
    kind: str, dtype: torch.dtype, length: int, shared: bool, norm: bool
) -> None:
    p, x = problem(dtype, shared=shared, norm=norm), randn(length, D, dtype=dtype)
    out = bind(moe.OP, p, kind)(x)
    assert out.dtype == dtype
    assert_close(out, expected(x, p), dtype)


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_router_ties_take_the_lowest_ids(kind: str, dtype: torch.dtype) -> None:
    """Equal logits everywhere, and a tie at the edge of the top 2."""
    p = problem(dtype, shared=False)
    router = torch.zeros(E, D, dtype=dtype)
    router[5, 1] = router[3, 1] = router[6, 1] = 1  # rows with x[1] = 1 tie between 3, 5, 6
    router[6, 2] = 1  # and with x[2] = 1 too, 6 leads a tie of 3 and 5
    p = MoEProblem(router, p.gate_up, p.down, 2, True)
    x = torch.zeros(3, D, dtype=dtype)
    x[1, 1] = x[2, 1] = x[2, 2] = 1
    x[:, 3] = 1
    out = bind(moe.OP, p, kind)(x)
    for t, chosen in enumerate([(0, 1), (3, 5), (3, 6)]):
        alone = MoEProblem(
            router[[*chosen]], dense(p.gate_up)[[*chosen]], dense(p.down)[[*chosen]], 2, True
        )
        assert_close(out[t : t + 1], expected(x[t : t + 1], alone), dtype)


@pytest.mark.parametrize("kind", exact_kinds(moe.OP))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_do_not_depend_on_the_batch(kind: str, dtype: torch.dtype) -> None:
    call, x = bind(moe.OP, problem(dtype), kind), randn(65, D, dtype=dtype)
    assert_rows_alone(lambda rows: call(x[rows]), 65)


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_lies_between_rows_is_not_read(kind: str, dtype: torch.dtype) -> None:
    """Of odd length, which some products read in pairs."""
    p, x = problem(dtype, hidden=21), randn(65, 21, dtype=dtype)
    assert_close(bind(moe.OP, p, kind)(strided(x)), expected(x, p), dtype)


@each_kind
def test_experts_nobody_chose_are_not_read(kind: str) -> None:
    p = problem(torch.float32, shared=False)
    x = randn(1, D, dtype=torch.float32)
    y = expected(x, p)
    chosen = torch.softmax(x.double() @ dense(p.router).double().T, -1).topk(2).indices[0].tolist()
    rest = [e for e in range(E) if e not in chosen]
    dense(p.gate_up)[rest] = torch.nan
    dense(p.down)[rest] = torch.nan
    assert_close(bind(moe.OP, p, kind)(x), y, torch.float32)


@each_kind
def test_no_rows(kind: str) -> None:
    assert bind(moe.OP, problem(torch.float32), kind)(torch.zeros(0, D)).shape == (0, D)
