"""Packed products: one sequence of operations for an element, whatever surrounds it."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from harness import same_bits
from kernel_cases import compiled, every_way, rounded_activations
from op_cases import randn
from thalweg.ops import extension, linear

SHAPES = ((1, 1), (37, 65), (33, 256), (64, 257), (31, 512), (100, 1000))
GROUPED = ((1, 32), (37, 64), (64, 288), (33, 512), (70, 1024))
PLAIN = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def quantised(name: str, n: int, k: int) -> Tensor:
    """Values that a format of groups of 32 holds exactly, chosen as llama.cpp's quantisers do."""
    w = randn(n, k // 32, 32, dtype=torch.float32)
    if name == "q8":
        scale = w.abs().amax(-1, keepdim=True) / 127
        return ((w / scale).round() * scale.half().float()).view(n, k)
    if name == "q4":
        scale = w.gather(-1, w.abs().argmax(-1, keepdim=True)) / -8
        return (((w / scale + 8.5).floor().clamp(0, 15) - 8) * scale.half().float()).view(n, k)
    low = w.amin(-1, keepdim=True)
    scale = (w.amax(-1, keepdim=True) - low) / 15
    q = ((w - low) / scale + 0.5).floor().clamp(0, 15)
    return (q.double() * scale.half().double() + low.half().double()).float().view(n, k)


def weights() -> list[tuple[str, Tensor]]:
    plain = [
        (name, randn(n, k, dtype=torch.float32).to(dtype).float())
        for name, dtype in PLAIN.items()
        for n, k in SHAPES
    ]
    return plain + [(name, quantised(name, *s)) for name in ("q8", "q4", "q4m") for s in GROUPED]


each_weight = pytest.mark.parametrize(
    ("name", "weight"), weights(), ids=lambda x: x if isinstance(x, str) else str([*x.shape])
)


@each_weight
def test_packing_takes_the_narrowest_format_and_keeps_every_value(
    name: str, weight: Tensor
) -> None:
    packed = extension.packed(weight)
    if weight.numel() > 1:
        assert packed.format == name
    table = extension.kernels().Embedding(packed)
    ids = torch.arange(len(weight), dtype=torch.int32)
    out = torch.full_like(weight, torch.nan)
    table.run(ids.data_ptr(), len(ids), out.data_ptr())
    assert torch.equal(out, weight)


@each_weight
def test_is_close_to_the_product(name: str, weight: Tensor) -> None:
    """Relative RMS error against float64: of the activations as the weights meet them, at most
    2e-6; of the activations themselves, what rounding them to 8 bits costs."""
    x = randn(70, weight.shape[1], dtype=torch.float32, seed=1)
    out = compiled(linear.OP, linear.LinearProblem(weight))(x)
    met = x.double() if name in PLAIN else rounded_activations(x)
    for values, bound in ((met, 2e-6), (x.double(), 2e-6 if name in PLAIN else 8e-3)):
        expected = values @ weight.double().T
        error = (out - expected).norm() / expected.norm()
        assert error <= bound, f"{error}"


def test_activations_at_the_ends_of_their_range() -> None:
    """Zeros and the nearly so, ties, the largest magnitudes of either sign, what is no number."""
    weight = quantised("q8", 8, 64)
    x = torch.zeros(7, 64)
    x[1] = 1e-38
    x[2] = torch.linspace(-127, 127, 64) / 2  # multiples of 1 / 2, nearly
    x[3], x[3, ::2] = 3e35, -3e35
    x[4, 40] = torch.inf
    x[5, 3] = torch.nan
    x[6] = torch.arange(64) % 32 - 15.5
    for call in every_way(linear.OP, linear.LinearProblem(weight)):
        out = call(x)
        assert not out[:2].any()
        exact = rounded_activations(x[[2, 3, 6]]) @ weight.double().T
        assert torch.allclose(out[[2, 3, 6]].double(), exact, rtol=1e-4, atol=1e-4)
        assert not out[4:6].isfinite().any()


@each_weight
@pytest.mark.parametrize("bias", [True, False])
def test_bits_depend_on_nothing_else(name: str, weight: Tensor, bias: bool) -> None:
    offset = randn(len(weight), dtype=torch.float32, seed=2) if bias else None
    problem = linear.LinearProblem(weight, offset)
    x = randn(513, weight.shape[1], dtype=torch.float32, seed=1)
    whole = compiled(linear.OP, problem)(x)
    for call in every_way(linear.OP, problem):
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 64):
            assert same_bits(call(x[:n]), whole[:n])
            assert same_bits(call(x[-n:]), whole[-n:])
        assert same_bits(call(x[:70]), whole[:70])


def test_plain_formats_give_the_bits_of_the_values() -> None:
    """A matrix that fits 16 bits, and the same with one row more that only float32 holds."""
    for dtype in (torch.bfloat16, torch.float16):
        weight = randn(40, 320, dtype=torch.float32).to(dtype).float()
        wide = torch.cat([weight, randn(1, 320, dtype=torch.float32, seed=9)])
        x = randn(9, 320, dtype=torch.float32, seed=1)
        narrow = compiled(linear.OP, linear.LinearProblem(weight))(x)
        assert same_bits(narrow, compiled(linear.OP, linear.LinearProblem(wide))(x)[:, :40])


@pytest.mark.parametrize("k", [1, 5, 256, 300, 600])
def test_an_element_is_the_documented_chain(k: int) -> None:
    """Fused multiply-adds ascending in segments of 256, the segments ascending, then the bias."""
    weight, x, bias = randn(3, k), randn(1, k, seed=1), randn(3, seed=2)
    weight, x, bias = weight.float(), x.float(), bias.float()
    out = compiled(linear.OP, linear.LinearProblem(weight, bias))(x)
    for n in range(3):
        total = torch.zeros(())
        for start in range(0, k, 256):
            acc = 0.0
            for i in range(start, min(start + 256, k)):
                # The product of two floats is exact in double; Fraction rounds the sum once.
                exact = Fraction(x[0, i].item()) * Fraction(weight[n, i].item()) + Fraction(acc)
                acc = to_float32(exact)
            total = torch.tensor(acc) if start == 0 else total + torch.tensor(acc)
        assert out[0, n].item() == (total + bias[n]).item()


def to_float32(x: Fraction) -> float:
    """To nearest, ties to even. Normal numbers only."""
    if x == 0:
        return 0.0
    exponent = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    for e in (exponent - 24, exponent - 23, exponent - 22):
        scaled = x / Fraction(2) ** e
        if 2**23 <= abs(scaled) < 2**24:
            return float(round(scaled) * Fraction(2) ** e)
    raise AssertionError(x)


def test_a_part_of_a_wider_row_is_a_row() -> None:
    weight = randn(40, 96, dtype=torch.float32)
    call = compiled(linear.OP, linear.LinearProblem(weight))
    wide = torch.full((9, 200), torch.nan)
    x = randn(9, 96, dtype=torch.float32, seed=1)
    wide[:, 7:103] = x
    assert same_bits(call(wide[:, 7:103]), call(x))
    assert same_bits(call(x.T.contiguous().T), call(x))


def test_tied_matrices_are_packed_once() -> None:
    weight = randn(40, 96, dtype=torch.float32)
    assert extension.packed(weight) is extension.packed(weight)
    assert extension.packed(weight.clone()) is not extension.packed(weight)
