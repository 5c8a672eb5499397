"""The functions of docs/numerics.md: their errors, their ends, and the same bits on every level."""

from __future__ import annotations

import torch
from torch import Tensor

from harness import same_bits
from kernel_cases import compiled
from thalweg.ops import extension, gated_delta_rule


def exp(x: Tensor, level: str | None = None) -> Tensor:
    kernels = extension.kernels()
    kernels.set_level(level or kernels.levels()[0])
    y = torch.empty_like(x)
    kernels.exp(x.data_ptr(), y.data_ptr(), len(x))
    return y


def ulps(actual: Tensor, exact: Tensor) -> float:
    """The largest error, in units of the last place of the exact value. Normal numbers only."""
    exponent = torch.frexp(exact.float()).exponent - 24
    return float(((actual.double() - exact) / torch.exp2(exponent.double())).abs().max())


def test_exp() -> None:
    x = torch.linspace(-87, 88.7, 400_001)
    assert ulps(exp(x), x.double().exp()) <= 1.1
    ends = torch.tensor([0.0, -0.0, 88.8, 1e30, torch.inf, -200.0, -torch.inf, torch.nan, -103.0])
    expected = ends.double().exp().float()
    assert torch.equal(exp(ends)[:7], expected[:7])
    assert bool(exp(ends)[7].isnan()) and exp(ends)[8] == 2**-149
    small = torch.linspace(-103, -87, 10_001)
    assert bool((exp(small).double() - small.double().exp()).abs().max() <= 2**-149)


def test_exp_on_every_level() -> None:
    x = torch.linspace(-110, 95, 100_003)
    for level in extension.kernels().levels():
        assert same_bits(exp(x, level), exp(x))


def test_gates() -> None:
    zero = torch.zeros(1)
    problem = gated_delta_rule.DeltaGatesProblem(zero, zero)
    x = torch.linspace(-80, 80, 200_001)[:, None]
    g, beta = compiled(gated_delta_rule.GATES_OP, problem)(x, x)
    wide = x.double()
    softplus = wide.clamp(min=0) + torch.log1p((-wide.abs()).exp())
    assert ulps(-g, softplus) <= 4
    assert ulps(beta, 1 / (1 + (-wide).exp())) <= 3
