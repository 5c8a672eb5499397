from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_next import modeling_qwen3_next

from harness import same_bits
from op_cases import (
    LENGTHS,
    PATTERNS,
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
from thalweg.ops import gated_delta_rule
from thalweg.ops.gated_delta_rule import DeltaGatesProblem, GatedDeltaRuleProblem

H, HV, K, V = 2, 4, 16, 24
HF = (modeling_qwen3_5, modeling_qwen3_next)
each_exact = pytest.mark.parametrize("kind", exact_kinds(gated_delta_rule.OP))
each_kind = pytest.mark.parametrize("kind", kinds(gated_delta_rule.OP))


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    q: Tensor  # [T, H, K]
    k: Tensor  # [T, H, K]
    v: Tensor  # [T, HV, V]
    g: Tensor  # [T, HV]
    beta: Tensor  # [T, HV]

    def of(self, rows: range) -> Inputs:
        part = slice(rows.start, rows.stop)
        return Inputs(self.q[part], self.k[part], self.v[part], self.g[part], self.beta[part])


def inputs(num_rows: int, dtype: torch.dtype = torch.float32) -> Inputs:
    q, k = (randn(num_rows, H, K, dtype=dtype, seed=s) for s in (1, 2))
    v = randn(num_rows, HV, V, dtype=dtype, seed=3)
    g = -randn(num_rows, HV, seed=4).exp().to(dtype) * 0.3
    return Inputs(q, k, v, g, randn(num_rows, HV, seed=5).sigmoid().to(dtype))


def run(kind: str, x: Inputs, ssm: Tensor, case: RaggedCase) -> Tensor:
    problem = GatedDeltaRuleProblem(H, HV, K, V, ssm.dtype)
    call = bind(gated_delta_rule.OP, problem, kind)
    return call(x.q, x.k, x.v, x.g, x.beta, ssm, case.batch)


def affine(x: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """One sequence as S <- A S + B with A = a (1 - beta k k^T), B = beta k v^T, in float64.

    state: [HV, K, V] -> outputs [n, HV, V], the states after each token [n, HV, K, V]
    """
    q, k = (t.double().repeat_interleave(HV // H, 1) for t in (x.q, x.k))
    q, k = (t / torch.sqrt((t * t).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    outs, states, s = [], [], state.double()
    for t in range(len(q)):
        beta, a = x.beta[t].double()[:, None, None], x.g[t].double().exp()[:, None, None]
        erase = torch.eye(K, dtype=torch.float64) - beta * k[t, :, :, None] * k[t, :, None, :]
        s = a * erase @ s + beta * k[t, :, :, None] * x.v[t].double()[:, None, :]
        states.append(s)
        outs.append(torch.einsum("hkv,hk->hv", s, q[t]) / K**0.5)
    return torch.stack(outs), torch.stack(states)


@each_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("lens", [(1,), (65,), (1, 1, 1), (5, 1, 0, 7), (3, 33, 2)], ids=str)
def test_is_the_affine_recurrence(
    kind: str, dtype: torch.dtype, pattern: str, lens: tuple[int, ...]
) -> None:
    """Every dimension differs, with and without an initial state (cases.md N2)."""
    case, x = ragged_case(lens, pattern), inputs(sum(lens), dtype)
    before = case.pool(HV, K, V, dtype=dtype)
    ssm = before.clone()
    out = run(kind, x, ssm, case)
    stored = []
    for rows, slot in zip(case.ranges(), case.batch.state.load_slots.tolist(), strict=True):
        if not rows:
            continue
        y, states = affine(x.of(rows), before[slot])
        assert_close(out[rows.start : rows.stop], y, dtype)
        for t in rows:
            if (store := int(case.batch.state.store_slots[t])) != SKIP:
                stored.append(store)
                assert_close(ssm[store], states[t - rows.start], dtype)
    assert out.dtype == dtype
    assert_only_stored(before, ssm, stored)


@each_kind
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("initial", [True, False], ids=["initial state", "zero state"])
@pytest.mark.parametrize("hf", HF, ids=lambda m: m.__name__.split(".")[-1])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_equals_transformers(kind: str, length: int, initial: bool, hf: object, form: str) -> None:
    case, x = ragged_case((length,), "in place" if initial else "new"), inputs(length)
    ssm = case.pool(HV, K, V, dtype=torch.float32)
    start = ssm[case.batch.state.load_slots].clone()
    theirs, state = getattr(hf, f"torch_{form}_gated_delta_rule")(
        *(t[None] for t in (x.q, x.k, x.v)),
        g=x.g[None],
        beta=x.beta[None],
        initial_state=start if initial else None,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    assert_close(run(kind, x, ssm, case), theirs[0], torch.float32)
    assert_close(ssm[1], state[0], torch.float32)


@pytest.mark.parametrize("kind", kinds(gated_delta_rule.GATES_OP))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_gates(kind: str, dtype: torch.dtype, length: int) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    problem = DeltaGatesProblem(randn(HV, dtype=wide), randn(HV, dtype=wide, seed=1))
    a, b = (randn(length, HV, dtype=dtype, seed=s) * 8 for s in (2, 3))
    g, beta = bind(gated_delta_rule.GATES_OP, problem, kind)(a, b)
    assert g.dtype == beta.dtype == wide
    x = a.double() + problem.dt_bias.double()
    softplus = torch.where(x > 20, x, torch.log1p(torch.exp(x)))  # as transformers has it
    assert_close(g, -problem.A_log.double().exp() * softplus, wide)
    assert_close(beta, 1 / (1 + torch.exp(-b.double())), wide)
    assert bool((g <= 0).all()), "a state never grows by decay"


@each_kind
def test_zero_vectors_have_norm_zero(kind: str) -> None:
    """cases.md N11: l2norm(0) = 0; a zero key writes nothing, a zero query reads nothing."""
    case, x = ragged_case((3,), "in place"), inputs(3)
    ssm = case.pool(HV, K, V, dtype=torch.float32)
    start = ssm[1].clone()
    zero = Inputs(torch.zeros_like(x.q), torch.zeros_like(x.k), x.v, torch.zeros_like(x.g), x.beta)
    out = run(kind, zero, ssm, case)
    assert out.count_nonzero() == 0
    assert torch.equal(ssm[1], start)


@each_kind
def test_padding_sequences_neither_read_nor_write(kind: str) -> None:
    """A row that loads the zero state and stores nowhere leaves the pool alone."""
    case, x = ragged_case((4, 0, 1), "nowhere"), inputs(5)
    before = case.pool(HV, K, V, dtype=torch.float32)
    ssm = before.clone()
    run(kind, x, ssm, case)
    assert same_bits(ssm, before)


@each_kind
@pytest.mark.parametrize("size", [1e5, 7e4, 2.0**-25])
def test_large_and_tiny_states_stay_exact(kind: str, size: float) -> None:
    """cases.md N6, N8: nothing on the way is narrower than float32."""
    case, x = ragged_case((9,), "in place"), inputs(9)
    ssm = case.pool(HV, K, V, dtype=torch.float32) * size
    y, states = affine(x, ssm[1])
    out = run(kind, x, ssm, case)
    assert_close(out / size, y / size, torch.float32)
    assert_close(ssm[1] / size, states[-1] / size, torch.float32)


@each_exact
def test_entries_below_the_flush_bound_become_zero(kind: str) -> None:
    """|s| < 2^-100 is 0 by definition, 2^-100 is kept."""
    case, x = ragged_case((1,), "in place"), inputs(1)
    still = Inputs(x.q, torch.zeros_like(x.k), x.v, torch.zeros_like(x.g), x.beta)
    ssm = case.pool(HV, K, V, dtype=torch.float32)
    ssm[1] = 2.0**-100
    ssm[1, :, 0] = -(2.0**-101)
    run(kind, still, ssm, case)
    assert ssm[1, :, 0].count_nonzero() == 0 and bool((ssm[1, :, 1:] == 2.0**-100).all())


@each_exact
@pytest.mark.parametrize("lens", [(1,), (3, 65, 1, 7), (1, 15, 16, 17, 33, 49, 63, 65)], ids=str)
def test_sequences_do_not_depend_on_each_other(kind: str, lens: tuple[int, ...]) -> None:
    """cases.md N3: bits alone == bits among others, whatever lies after them."""
    together, x = ragged_case(lens, "new"), inputs(sum(lens))
    ssm = together.pool(HV, K, V, dtype=torch.float32)
    out = run(kind, x, ssm, together)
    for i, rows in enumerate(together.ranges()):
        alone = ragged_case((len(rows),), "new")
        pool = alone.pool(HV, K, V, dtype=torch.float32)
        part = x.of(rows)
        q, k, v = (_strided(t) for t in (part.q, part.k, part.v))
        strided = Inputs(q, k, v, part.g, part.beta)
        assert same_bits(run(kind, strided, pool, alone), out[rows.start : rows.stop])
        assert same_bits(pool[1], ssm[1 + i])


def _strided(x: Tensor) -> Tensor:
    """The same values as part of a wider row, as `split` gives them."""
    flat = torch.full((len(x), x[0].numel() + 5), torch.nan, dtype=x.dtype)
    flat[:, 3:-2] = x.flatten(1)
    return flat[:, 3:-2].unflatten(1, x.shape[1:])


@each_kind
def test_any_split_into_chunks_gives_the_same_state(kind: str) -> None:
    """cases.md N4 for the rule alone: reference and torch go token by token."""
    x = inputs(65)
    whole = ragged_case((65,), "new")
    ssm = whole.pool(HV, K, V, dtype=torch.float32)
    out = run(kind, x, ssm, whole)
    for sizes in ((1,) * 65, (64, 1), (7, 2, 33, 23)):
        case, start = ragged_case((1,), "new"), 0
        pool = case.pool(HV, K, V, dtype=torch.float32)
        for n in sizes:
            case = ragged_case((n,), "in place" if start else "new")
            rows = range(start, start + n)
            assert_close(run(kind, x.of(rows), pool, case), out[start : start + n], torch.float32)
            start += n
        assert_close(pool[1], ssm[1], torch.float32)
        if kind in exact_kinds(gated_delta_rule.OP):
            assert same_bits(pool[1], ssm[1])


def decode_error(kind: str, num_steps: int, *, narrow: bool) -> float:
    """Relative error of S after single steps of slow decay on bfloat16 inputs, against float64.

    `narrow` rounds the state to bfloat16 after each step, the fault this measures.
    """
    x = inputs(num_steps, torch.bfloat16)
    slow = Inputs(x.q.float(), x.k.float(), x.v.float(), x.g.float() * 1e-3, x.beta.float() * 0.1)
    case = ragged_case((1,), "in place")
    ssm = torch.zeros(case.num_slots, HV, K, V)
    for t in range(num_steps):
        run(kind, slow.of(range(t, t + 1)), ssm, case)
        if narrow:
            ssm.copy_(ssm.bfloat16())
    _, states = affine(slow, torch.zeros(HV, K, V))
    return float((ssm[1].double() - states[-1]).norm() / states[-1].norm())


@each_kind
def test_a_state_kept_in_float32_does_not_drift(kind: str) -> None:
    """cases.md N7: 500 decode steps with a long memory; bfloat16 states would show at once."""
    assert decode_error(kind, 500, narrow=False) < 1e-5
    assert decode_error(kind, 500, narrow=True) > 1e-3


@each_kind
def test_2100_sequences_of_one_token(kind: str) -> None:
    """cases.md N14: S = beta k v^T from nothing, so o = beta (k . q) v."""
    x, case = inputs(2100), ragged_case((1,) * 2100, "new")
    ssm = case.pool(HV, K, V, dtype=torch.float32)
    q, k = (t.double() / torch.sqrt((t.double() ** 2).sum(-1, True) + 1e-6) for t in (x.q, x.k))
    dot = (q * k).sum(-1).repeat_interleave(HV // H, 1) / K**0.5
    expected = (x.beta.double() * dot)[..., None] * x.v.double()
    assert_close(run(kind, x, ssm, case), expected, torch.float32)
