"""Every other compiled op: the same bits alone, among others, in chunks, on any threads and level.

What they compute is tested with the other kinds in tests/ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from harness import same_bits
from kernel_cases import BATCHES, CHUNKS, chunks, compiled, every_way
from op_cases import assert_close, bind, ragged_case, randn
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import RopeConfig
from thalweg.ids import NULL, SKIP
from thalweg.ops import (
    causal_conv1d,
    gated_delta_rule,
    linear,
    mlp,
    moe,
    paged_attention,
    rms_norm,
    rotary,
    silu_and_mul,
)
from thalweg.ops.linear.quantise import quantised
from thalweg.ops.paged_attention import AttentionInputs
from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_ROWS = 130


def random(*shape: int, seed: int = 1) -> Tensor:
    return randn(*shape, dtype=torch.float32, seed=seed)


def assert_rows_are_their_own(whole: Tensor, call: Callable[..., Tensor], *inputs: Tensor) -> None:
    for n in BATCHES:
        for rows in (slice(0, n), slice(NUM_ROWS - n, NUM_ROWS)):
            assert same_bits(call(*(x[rows] for x in inputs)), whole[rows]), rows


def nth(call: Callable[..., tuple[Tensor, ...]], i: int) -> Callable[..., Tensor]:
    return lambda *inputs: call(*inputs)[i]


@pytest.mark.parametrize("width", [1, 16, 24, 63, 130, 1024])
def test_norms(width: int) -> None:
    problem = rms_norm.RMSNormProblem(random(width), 1e-6, True)
    x, z = random(NUM_ROWS, width), random(NUM_ROWS, width, seed=2)
    plain = compiled(rms_norm.OP, problem)(x)
    added, total = compiled(rms_norm.ADD_OP, problem)(x, z)
    gated = compiled(rms_norm.GATED_OP, problem)(x, z)
    assert same_bits(total, x + z)
    assert same_bits(added, compiled(rms_norm.OP, problem)(total))
    for norm in every_way(rms_norm.OP, problem):
        assert_rows_are_their_own(plain, norm, x)
        heads = norm(x.view(65, 2, width).transpose(0, 1)).transpose(0, 1)
        assert same_bits(heads.reshape(NUM_ROWS, width), plain)
    for add in every_way(rms_norm.ADD_OP, problem):
        assert_rows_are_their_own(added, nth(add, 0), x, z)
    for gate in every_way(rms_norm.GATED_OP, problem):
        assert_rows_are_their_own(gated, gate, x, z)


@pytest.mark.parametrize("width", [1, 33, 1024, 3000])
def test_silu_and_mul(width: int) -> None:
    problem = silu_and_mul.SiluAndMulProblem(width, torch.float32)
    x = random(NUM_ROWS, 2 * width) * 4
    whole = compiled(silu_and_mul.OP, problem)(x)
    for call in every_way(silu_and_mul.OP, problem):
        assert_rows_are_their_own(whole, call, x)


@pytest.mark.parametrize("kind", ["float32", "q8"])
def test_mlp_is_its_ops(kind: str) -> None:
    gate_up, down = random(2 * 96, 64), random(64, 96)
    if kind == "q8":
        gate_up, down = quantised(gate_up, kind).dense(), quantised(down, kind).dense()
    x = random(NUM_ROWS, 64)
    wide = compiled(linear.OP, linear.LinearProblem(gate_up))(x)
    active = compiled(silu_and_mul.OP, silu_and_mul.SiluAndMulProblem(96, torch.float32))(wide)
    whole = compiled(linear.OP, linear.LinearProblem(down))(active)
    for call in every_way(mlp.OP, mlp.MLPProblem(gate_up, down)):
        assert_rows_are_their_own(whole, call, x)


def by_token(call: rotary.Rotary) -> Callable[..., Tensor]:
    return lambda x, positions: call(x, positions[None])


@pytest.mark.parametrize(("dim", "turned"), [(16, 4), (24, 24), (64, 50), (256, 64)])
def test_rotary(dim: int, turned: int) -> None:
    problem = rotary.RotaryProblem(RopeConfig(turned, 1e7), 262_144, torch.float32, "cpu")
    x = random(NUM_ROWS, 3, dim)
    positions = torch.randint(0, 262_144, (1, NUM_ROWS), dtype=torch.int32)
    whole = compiled(rotary.OP, problem)(x, positions)
    for call in every_way(rotary.OP, problem):
        assert_rows_are_their_own(whole, by_token(call), x, positions[0])


def test_rotary_is_exact_far_out() -> None:
    """Angles are floats; their sines and cosines are within an ulp at any position."""
    problem = rotary.RotaryProblem(RopeConfig(64, 1e7), 262_144, torch.float32, "cpu")
    positions = torch.arange(0, 262_144, 997, dtype=torch.int32)[None]
    x = torch.zeros(positions.shape[1], 1, 64)
    x[..., :32] = 1
    out = compiled(rotary.OP, problem)(x, positions)[:, 0]
    frequencies = 1.0 / 1e7 ** (torch.arange(0, 64, 2).float() / 64)
    angles = (positions[0, :, None].float() * frequencies).double()
    assert bool((out[:, :32] - angles.cos()).abs().max() <= 2**-24)
    assert bool((out[:, 32:] - angles.sin()).abs().max() <= 2**-24)


HK, HV, K, V = 2, 4, 16, 24


def delta_inputs(num_rows: int, k_dim: int, v_dim: int) -> tuple[Tensor, ...]:
    return (
        random(num_rows, HK, k_dim),
        random(num_rows, HK, k_dim, seed=2),
        random(num_rows, HV, v_dim, seed=3),
        -random(num_rows, HV, seed=4).exp() * 0.3,
        random(num_rows, HV, seed=5).sigmoid(),
    )


def one_sequence(rows: range, load: int, stores: list[int]) -> ForwardBatch:
    seq = SequenceInput([0] * len(rows), rows.start, [1], load, stores)
    return ForwardBatch.ragged([seq], range(len(rows)), block_size=1024)


@pytest.mark.parametrize(("k_dim", "v_dim"), [(16, 24), (5, 33), (128, 128), (16, 7)])
def test_delta_rule_in_any_chunks(k_dim: int, v_dim: int) -> None:
    problem = gated_delta_rule.GatedDeltaRuleProblem(HK, HV, k_dim, v_dim, torch.float32)
    x = delta_inputs(101, k_dim, v_dim)
    call = compiled(gated_delta_rule.OP, problem)
    single = torch.full((102, HV, k_dim, v_dim), torch.nan)
    single[NULL] = 0
    rows = []
    for t in range(101):
        rows.append(
            call(*(p[t : t + 1] for p in x), single, one_sequence(range(t, t + 1), t, [t + 1]))
        )
    whole = torch.cat(rows)
    for size in CHUNKS:
        pool = torch.full_like(single, torch.nan)
        pool[NULL] = 0
        for part in chunks(101, size):
            stores = [t + 1 for t in part]
            out = call(
                *(p[part.start : part.stop] for p in x),
                pool,
                one_sequence(part, part.start, stores),
            )
            assert same_bits(out, whole[part.start : part.stop])
        assert same_bits(pool, single), size
    for other in every_way(gated_delta_rule.OP, problem):
        pool = torch.full((2, HV, k_dim, v_dim), torch.nan)
        pool[NULL] = 0
        out = other(*x, pool, one_sequence(range(101), NULL, [SKIP] * 100 + [1]))
        assert same_bits(out, whole) and same_bits(pool[1], single[101])


def test_delta_rule_flushes_by_definition() -> None:
    problem = gated_delta_rule.GatedDeltaRuleProblem(HK, HV, K, V, torch.float32)
    q, k, v, g, beta = delta_inputs(1, K, V)
    pool = torch.zeros(2, HV, K, V)
    pool[1] = 2.0**-100
    pool[1, :, 0] = -(2.0**-101)
    pool[1, :, 1] = 2.0**-140
    call = compiled(gated_delta_rule.OP, problem)
    call(q, torch.zeros_like(k), v, torch.zeros_like(g), beta, pool, one_sequence(range(1), 1, [1]))
    assert pool[1, :, :2].count_nonzero() == 0
    assert bool((pool[1, :, 2:] == 2.0**-100).all())


def test_gates() -> None:
    problem = gated_delta_rule.DeltaGatesProblem(random(HV), random(HV, seed=2))
    a, b = random(NUM_ROWS, HV, seed=3) * 9, random(NUM_ROWS, HV, seed=4) * 9
    g, beta = compiled(gated_delta_rule.GATES_OP, problem)(a, b)
    for call in every_way(gated_delta_rule.GATES_OP, problem):
        for i, whole in enumerate((g, beta)):
            assert_rows_are_their_own(whole, nth(call, i), a, b)


@pytest.mark.parametrize(("channels", "taps"), [(1, 4), (40, 4), (300, 2), (33, 1), (6144, 4)])
def test_conv_in_any_chunks(channels: int, taps: int) -> None:
    problem = causal_conv1d.CausalConv1dProblem(random(channels, taps))
    x = random(101, channels, seed=3)
    call = compiled(causal_conv1d.OP, problem)
    pool = torch.full((102, taps - 1, channels), torch.nan)
    pool[NULL] = 0
    whole = call(x, pool, one_sequence(range(101), NULL, [t + 1 for t in range(101)]))
    for size in CHUNKS if channels < 1000 else (7, 65):
        again = torch.full_like(pool, torch.nan)
        again[NULL] = 0
        for part in chunks(101, size):
            batch = one_sequence(part, part.start, [t + 1 for t in part])
            out = call(x[part.start : part.stop], again, batch)
            assert same_bits(out, whole[part.start : part.stop])
        assert same_bits(again, pool)
    for other in every_way(causal_conv1d.OP, problem):
        again = torch.full_like(pool, torch.nan)
        again[NULL] = 0
        batch = one_sequence(range(101), NULL, [t + 1 for t in range(101)])
        assert same_bits(other(x, again, batch), whole) and same_bits(again, pool)


def attention_inputs(num_rows: int, heads: int, kv_heads: int, dim: int) -> AttentionInputs:
    return AttentionInputs(
        random(num_rows, heads, dim, seed=4),
        random(num_rows, kv_heads, dim, seed=5),
        random(num_rows, kv_heads, dim, seed=6),
        random(num_rows, heads, dim, seed=7),
    )


def rows_of(x: AttentionInputs, part: range) -> AttentionInputs:
    s = slice(part.start, part.stop)
    assert x.gate is not None
    return AttentionInputs(x.q[s], x.k[s], x.v[s], x.gate[s])


def context(part: range, blocks: list[int], block_size: int) -> ForwardBatch:
    seq = SequenceInput([0] * len(part), part.start, blocks, NULL, [SKIP] * len(part))
    return ForwardBatch.ragged([seq], range(len(part)), block_size=block_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(6, 2, 10), (4, 4, 16), (8, 2, 256), (3, 1, 64), (16, 1, 40)]
)
def test_attention_in_any_chunks(heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> None:
    """Across three tiles, other block ids, chunks against single tokens."""
    num, size = 300, 16
    problem = paged_attention.PagedAttentionProblem(heads, kv_heads, dim, size, torch.float32)
    x = attention_inputs(num, heads, kv_heads, dim)
    num_blocks = -(-num // size)

    def run(call: paged_attention.PagedAttention, parts: list[range], seed: int) -> Tensor:
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
        blocks = order.add(1).tolist()
        k = torch.full(((num_blocks + 1) * size, kv_heads, dim), torch.nan, dtype=dtype)
        v = k.clone()
        return torch.cat(
            [call(rows_of(x, part), k, v, context(part, blocks, size)) for part in parts]
        )

    call = compiled(paged_attention.OP, problem)
    whole = run(call, [range(num)], 0)
    assert bool(whole.isfinite().all())
    for n in (1, 7, 65, 100):
        assert same_bits(run(call, list(chunks(num, n)), n), whole), n
    for other in every_way(paged_attention.OP, problem):
        assert same_bits(run(other, [range(num)], 1), whole)
        assert same_bits(run(other, [range(299), range(299, 300)], 1), whole)


def test_attention_reads_rounded_rows() -> None:
    """A bf16 cache: what a pass has just written is read as it was stored."""
    problem = paged_attention.PagedAttentionProblem(4, 2, 16, 16, torch.float32)
    x = attention_inputs(20, 4, 2, 16)
    rounded = AttentionInputs(x.q, x.k.bfloat16().float(), x.v.bfloat16().float(), x.gate)
    call = compiled(paged_attention.OP, problem)
    batch = context(range(20), [1, 2], 16)
    narrow = [torch.full((48, 2, 16), torch.nan, dtype=torch.bfloat16) for _ in range(2)]
    wide = [torch.full((48, 2, 16), torch.nan) for _ in range(2)]
    assert same_bits(call(x, *narrow, batch), call(rounded, *wide, batch))
    assert same_bits(narrow[0][16:36].float(), rounded.k)


def test_sequences_beside_each_other() -> None:
    """Each of a ragged batch has the bits it has alone: conv, delta rule and attention."""
    lens = (3, 65, 1, 0, 7, 130, 1)
    case = ragged_case(lens, "new")
    conv = causal_conv1d.CausalConv1dProblem(random(40, 4))
    delta = gated_delta_rule.GatedDeltaRuleProblem(HK, HV, K, V, torch.float32)
    attention = paged_attention.PagedAttentionProblem(6, 2, 10, 4, torch.float32)
    x, d = random(sum(lens), 40, seed=3), delta_inputs(sum(lens), K, V)
    a = attention_inputs(sum(lens), 6, 2, 10)

    def run(part: range, batch: ForwardBatch, slots: int, blocks: int) -> list[Tensor]:
        windows, states = torch.zeros(slots, 3, 40), torch.zeros(slots, HV, K, V)
        k, v = (torch.full((blocks * 4, 2, 10), torch.nan) for _ in range(2))
        s = slice(part.start, part.stop)
        return [
            compiled(causal_conv1d.OP, conv)(x[s], windows, batch),
            compiled(gated_delta_rule.OP, delta)(*(p[s] for p in d), states, batch),
            compiled(paged_attention.OP, attention)(rows_of(a, part), k, v, batch),
        ]

    together = run(range(sum(lens)), case.batch, case.num_slots, case.num_blocks)
    for part in case.ranges():
        alone = ragged_case((len(part),), "new")
        for one, all_rows in zip(
            run(part, alone.batch, alone.num_slots, alone.num_blocks), together, strict=True
        ):
            assert same_bits(one, all_rows[part.start : part.stop])


def test_many_sequences_in_one_pass() -> None:
    """cases.md N14: 2100 packed sequences of one token."""
    num = 2100
    batch = ForwardBatch.decode(
        [SequenceInput([0], 0, [1 + i], NULL, [1 + i]) for i in range(num)], block_size=4
    )
    x = delta_inputs(num, K, V)
    problem = gated_delta_rule.GatedDeltaRuleProblem(HK, HV, K, V, torch.float32)
    call = compiled(gated_delta_rule.OP, problem)
    pool = torch.zeros(num + 1, HV, K, V)
    out = call(*x, pool, batch)
    for i in (0, 1, 1048, num - 1):
        one = torch.zeros(2, HV, K, V)
        alone = call(*(p[i : i + 1] for p in x), one, one_sequence(range(1), NULL, [1]))
        assert same_bits(alone[0], out[i]) and same_bits(one[1], pool[1 + i])


@pytest.mark.parametrize("with_shared", [True, False])
def test_moe(with_shared: bool) -> None:
    hidden, inner, experts = 33, 40, 9
    shared = moe.SharedExpert(
        random(2 * 48, hidden, seed=4) * 0.2,
        random(hidden, 48, seed=5) * 0.2,
        random(1, hidden, seed=6),
    )
    problem = moe.MoEProblem(
        router=random(experts, hidden, seed=1) * 0.3,
        gate_up=random(experts, 2 * inner, hidden, seed=2) * 0.2,
        down=random(experts, hidden, inner, seed=3) * 0.2,
        top_k=3,
        norm_topk_prob=True,
        shared=shared if with_shared else None,
    )
    x = random(NUM_ROWS, hidden, seed=7)
    whole = compiled(moe.OP, problem)(x)
    for call in every_way(moe.OP, problem):
        assert_rows_are_their_own(whole, call, x)


def test_router_ties_take_the_lowest_ids() -> None:
    problem = moe.MoEProblem(
        router=torch.zeros(6, 8),
        gate_up=random(6, 2 * 5, 8, seed=2),
        down=random(6, 8, 5, seed=3),
        top_k=2,
        norm_topk_prob=True,
    )
    x = random(3, 8)
    first = moe.MoEProblem(
        router=torch.zeros(2, 8),
        gate_up=dense(problem.gate_up)[:2],
        down=dense(problem.down)[:2],
        top_k=2,
        norm_topk_prob=True,
    )
    out = compiled(moe.OP, problem)(x)
    assert_close(out, bind(moe.OP, first, "reference")(x), torch.float32)
