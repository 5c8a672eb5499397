from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from harness import same_bits
from op_cases import DTYPES, RaggedCase, assert_close, bind, exact_kinds, kinds, ragged_case, randn
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import SKIP
from thalweg.ops import paged_attention
from thalweg.ops.paged_attention import AttentionInputs, PagedAttentionProblem

H, HKV, D = 6, 2, 10
each_kind = pytest.mark.parametrize("kind", kinds(paged_attention.OP))


def problem(dtype: torch.dtype, block_size: int = 4) -> PagedAttentionProblem:
    return PagedAttentionProblem(H, HKV, D, block_size, dtype)


def inputs(num_rows: int, dtype: torch.dtype, gated: bool = True) -> AttentionInputs:
    q = randn(num_rows, H, D, dtype=dtype, seed=4)
    k, v = (randn(num_rows, HKV, D, dtype=dtype, seed=s) for s in (5, 6))
    return AttentionInputs(q, k, v, randn(num_rows, H, D, dtype=dtype, seed=7) if gated else None)


def caches(case: RaggedCase, dtype: torch.dtype) -> list[Tensor]:
    """NaN but for the rows of each sequence's past."""
    pair = []
    for seed in (8, 9):
        cache = torch.full((case.num_blocks * case.block_size, HKV, D), torch.nan, dtype=dtype)
        for i, start in enumerate(case.starts):
            for p in range(start):
                cache[row_of(case, i, p)] = randn(HKV, D, dtype=dtype, seed=seed + 100 * i + p)
        pair.append(cache)
    return pair


def row_of(case: RaggedCase, i: int, p: int) -> int:
    block = int(case.batch.paged.block_table[i, p // case.block_size])
    return block * case.block_size + p % case.block_size


def expected(x: AttentionInputs, k_cache: Tensor, v_cache: Tensor, case: RaggedCase) -> Tensor:
    """Dense causal softmax in float64, over each sequence's past and new rows."""
    out = torch.zeros(len(x.q), H, D, dtype=torch.float64)
    for i, rows in enumerate(case.ranges()):
        past = [row_of(case, i, p) for p in range(case.starts[i])]
        part = slice(rows.start, rows.stop)
        k = torch.cat([k_cache[past], x.k[part]]).double().repeat_interleave(H // HKV, 1)
        v = torch.cat([v_cache[past], x.v[part]]).double().repeat_interleave(H // HKV, 1)
        scores = torch.einsum("thd,shd->hts", x.q[part].double(), k) / math.sqrt(D)
        future = torch.ones(len(rows), len(k), dtype=torch.bool).triu(len(past) + 1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        out[part] = torch.einsum("hts,shd->thd", weights, v)
    return out if x.gate is None else out * x.gate.double().sigmoid()


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("past", [0, 6])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("lens", [(1,), (63,), (1, 1, 1), (5, 1, 0, 7), (9, 2, 33, 1)], ids=str)
def test_is_causal_softmax_over_the_pages(
    kind: str, dtype: torch.dtype, past: int, gated: bool, lens: tuple[int, ...]
) -> None:
    case, x = ragged_case(lens, past=past), inputs(sum(lens), dtype, gated)
    k_cache, v_cache = caches(case, dtype)
    y = expected(x, k_cache, v_cache, case)
    out = bind(paged_attention.OP, problem(dtype), kind)(x, k_cache, v_cache, case.batch)
    assert out.dtype == dtype
    assert_close(out, y, dtype)
    rows = case.batch.paged.slot_mapping
    assert same_bits(k_cache[rows], x.k) and same_bits(v_cache[rows], x.v)
    used = {
        *rows.tolist(),
        *(row_of(case, i, p) for i, s in enumerate(case.starts) for p in range(s)),
    }
    free = [r for r in range(len(k_cache)) if r not in used]
    assert bool(k_cache[free].isnan().all()) and bool(v_cache[free].isnan().all())


@each_kind
def test_skipped_rows_are_read_from_the_cache_and_not_written(kind: str) -> None:
    """A prefix computed again: its rows in shared blocks count, those of the pass do not."""
    seq = SequenceInput([0] * 10, 0, [3, 1, 2], 0, [SKIP] * 10, num_written=8)
    batch = ForwardBatch.prefill(seq, block_size=4)
    known = inputs(10, torch.float64)
    call = bind(paged_attention.OP, problem(torch.float64), kind)
    k_cache, v_cache = (torch.full((16, HKV, D), torch.nan, dtype=torch.float64) for _ in "kv")
    plain = ForwardBatch.prefill(
        SequenceInput([0] * 10, 0, [3, 1, 2], 0, [SKIP] * 10), block_size=4
    )
    whole = call(known, k_cache, v_cache, plain)
    before = k_cache.clone(), v_cache.clone()
    other = randn(8, HKV, D, seed=11)
    changed = AttentionInputs(
        known.q, torch.cat([other, known.k[8:]]), torch.cat([other, known.v[8:]]), known.gate
    )
    assert same_bits(call(changed, k_cache, v_cache, batch), whole)
    assert same_bits(k_cache, before[0]) and same_bits(v_cache, before[1])


@each_kind
@pytest.mark.parametrize("num_pads", [0, 1, 5])
def test_padding_reads_and_writes_nothing_and_yields_zeros(kind: str, num_pads: int) -> None:
    seq = SequenceInput([0] * 3, 0, [2], 0, [SKIP] * 3)
    pad = SequenceInput.padding(num_pads)
    batch = ForwardBatch.ragged([pad, seq, pad], [], block_size=4)
    x = inputs(3 + 2 * num_pads, torch.float32)
    k_cache, v_cache = (torch.full((16, HKV, D), torch.nan) for _ in "kv")
    out = bind(paged_attention.OP, problem(torch.float32), kind)(x, k_cache, v_cache, batch)
    own = slice(num_pads, num_pads + 3)
    assert out[:num_pads].count_nonzero() == out[num_pads + 3 :].count_nonzero() == 0
    assert bool(out[own].isfinite().all())
    assert bool(k_cache[:8].isnan().all()) and bool(k_cache[11:].isnan().all())
    assert same_bits(k_cache[8:11], x.k[own])


@pytest.mark.parametrize("kind", exact_kinds(paged_attention.OP))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_rows_do_not_depend_on_batch_chunk_or_block_ids(
    kind: str, dtype: torch.dtype, block_size: int
) -> None:
    """One pass over 37 tokens, one at a time, and among others have the same bits."""
    call = bind(paged_attention.OP, problem(dtype, block_size), kind)
    x = inputs(37, dtype)
    num_blocks = -(-37 // block_size)

    def run(sizes: list[int], blocks: list[int]) -> Tensor:
        pool = [torch.full((200 * block_size, HKV, D), torch.nan, dtype=dtype) for _ in "kv"]
        outs, p = [], 0
        for n in sizes:
            seq = SequenceInput([0] * n, p, blocks, 0, [SKIP] * n)
            pad = SequenceInput.padding(p % 3)
            batch = ForwardBatch.ragged([pad, seq], [], block_size=block_size)
            rows = [0] * (p % 3) + list(range(p, p + n))
            assert x.gate is not None
            part = AttentionInputs(x.q[rows], x.k[rows], x.v[rows], x.gate[rows])
            outs.append(call(part, pool[0], pool[1], batch)[p % 3 :])
            p += n
        return torch.cat(outs)

    whole = run([37], list(range(1, num_blocks + 1)))
    assert same_bits(run([1] * 37, list(range(num_blocks, 0, -1))), whole)
    assert same_bits(run([7, 1, 16, 2, 11], list(range(100, 100 + num_blocks))), whole)
