"""Counter-based random numbers: a function of a name, not of what was drawn before."""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: steps of a Weyl sequence
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)


def draw_key(seed: int, sample_index: int, token_index: int) -> int:
    """A 64-bit name for one draw. `token_index` counts the answer's tokens from 0."""
    key = _mix(seed)
    for index in (sample_index, token_index):  # one after the other: their order counts
        key = _mix(key + (index + 1) * _GOLDEN & _MASK)
    return key


def uniforms(key: int, ids: Tensor) -> Tensor:
    """One number in (0, 1) for each vocabulary id: [n] int64 -> [n] float64."""
    bits = _mix_tensor(ids * _signed(_GOLDEN) + _signed(key))
    return (_shifted(bits, 12).double() + 0.5) * 2.0**-52  # 53 bits: exact, and never 1


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1), strict=True):
        x = (x ^ (x >> shift)) * multiplier & _MASK
    return x


def _mix_tensor(x: Tensor) -> Tensor:
    """The same on int64 tensors, whose products wrap."""
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1), strict=True):
        x = (x ^ _shifted(x, shift)) * _signed(multiplier)
    return x


def _shifted(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; int64's own is arithmetic."""
    return torch.bitwise_right_shift(x, bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
