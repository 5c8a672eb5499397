from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from harness import same_bits
from op_cases import (
    DTYPES,
    PATTERNS,
    RAGGED,
    RaggedCase,
    assert_close,
    assert_only_stored,
    bind,
    exact_kinds,
    kinds,
    ragged_case,
    randn,
)
from thalweg.ids import SKIP
from thalweg.ops import causal_conv1d
from thalweg.ops.precision import ACCUMULATE

D = 13
each_kind = pytest.mark.parametrize("kind", kinds(causal_conv1d.OP))


def problem(dtype: torch.dtype, width: int = 4) -> causal_conv1d.CausalConv1dProblem:
    return causal_conv1d.CausalConv1dProblem(randn(D, width, dtype=dtype) * 0.5)


def expected(x: Tensor, weight: Tensor, conv: Tensor, case: RaggedCase) -> tuple[Tensor, Tensor]:
    """By torch's own convolution, in float64: outputs, and the pool with every store made."""
    out, pool = torch.empty(x.shape, dtype=torch.float64), conv.double().clone()
    past = weight.shape[1] - 1
    for i, rows in enumerate(case.ranges()):
        loaded = conv[case.batch.state.load_slots[i]].double()
        stream = torch.cat([loaded, x[rows.start : rows.stop].double()])  # [W - 1 + n, D]
        if len(rows):
            y = F.conv1d(stream.T[None], weight.double()[:, None], groups=D)[0].T
            out[rows.start : rows.stop] = y / (1 + torch.exp(-y))
        for t in rows:
            store = int(case.batch.state.store_slots[t])
            if store != SKIP:
                pool[store] = stream[t - rows.start + 1 : t - rows.start + 1 + past]
    return out, pool


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("lens", RAGGED, ids=str)
def test_is_the_convolution_with_each_sequences_window(
    kind: str, dtype: torch.dtype, pattern: str, lens: tuple[int, ...]
) -> None:
    case, wide = ragged_case(lens, pattern), ACCUMULATE[dtype]
    x = randn(sum(lens), D, dtype=dtype, seed=2)
    before = case.pool(3, D, dtype=wide)
    conv = before.clone()
    y, pool = expected(x, problem(dtype).weight, before, case)
    out = bind(causal_conv1d.OP, problem(dtype), kind)(x, conv, case.batch)
    assert out.dtype == wide
    assert_close(out, y, torch.float32 if wide == torch.float32 else dtype)
    stored = [s for s in case.batch.state.store_slots.tolist() if s != SKIP]
    assert same_bits(conv[stored].double(), pool[stored]), "a window is a copy, exact"
    assert_only_stored(before, conv, stored)


@each_kind
@pytest.mark.parametrize("width", [2, 3, 4])
def test_other_widths(kind: str, width: int) -> None:
    case = ragged_case((5, 1, 3), "in place")
    x, before = randn(9, D, dtype=torch.float32), case.pool(width - 1, D, dtype=torch.float32)
    p = problem(torch.float32, width)
    y, _ = expected(x, p.weight, before, case)
    assert_close(bind(causal_conv1d.OP, p, kind)(x, before.clone(), case.batch), y, torch.float32)


@pytest.mark.parametrize("kind", exact_kinds(causal_conv1d.OP))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_do_not_depend_on_other_sequences(kind: str, dtype: torch.dtype) -> None:
    """A sequence has the same bits alone and among others."""
    call = bind(causal_conv1d.OP, problem(dtype), kind)
    lens = (3, 65, 1, 7, 2)
    x = randn(sum(lens), D + 3, dtype=dtype, seed=2)[:, 2:-1]
    together = ragged_case(lens, "new")
    out = call(x, together.pool(3, D, dtype=ACCUMULATE[dtype]), together.batch)
    for rows in together.ranges():
        alone = ragged_case((len(rows),), "new")
        pool = alone.pool(3, D, dtype=ACCUMULATE[dtype])
        part = slice(rows.start, rows.stop)
        assert same_bits(call(x[part].clone(), pool, alone.batch), out[part])
