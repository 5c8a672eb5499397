"""The angle per position of every channel pair, and the tables made from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from thalweg.config import RopeConfig
    from thalweg.ops.rotary import RotaryProblem


@dataclass(frozen=True, slots=True, eq=False)
class RotaryTable:
    cos: Tensor  # [max_positions, rotary_dim / 2]
    sin: Tensor  # [max_positions, rotary_dim / 2]


def rotary_table(problem: RotaryProblem) -> RotaryTable:
    """cos and sin for every position, in float32, or float64 for float64 activations."""
    dtype = torch.float64 if problem.dtype == torch.float64 else torch.float32
    positions = torch.arange(problem.max_positions, dtype=dtype)
    angles = positions[:, None] * frequencies(problem.rope, dtype)
    factor = attention_factor(problem.rope)
    return RotaryTable(
        (angles.cos() * factor).to(problem.device, problem.dtype),
        (angles.sin() * factor).to(problem.device, problem.dtype),
    )


def frequencies(rope: RopeConfig, dtype: torch.dtype) -> Tensor:
    """[rotary_dim / 2]: theta^(-2i / rotary_dim), then the scaling rule."""
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.int64).to(dtype) / rope.rotary_dim
    base = 1.0 / rope.theta**exponents
    return {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn}[rope.scaling](
        base, rope
    )


def attention_factor(rope: RopeConfig) -> float:
    """What YaRN multiplies q and k with: 0.1 ln(factor) + 1, unless the checkpoint says."""
    if rope.scaling != "yarn":
        return 1.0
    params = rope.params
    if "attention_factor" in params:
        return params["attention_factor"]
    factor = params["factor"]
    if params.get("mscale") and params.get("mscale_all_dim"):
        return _mscale(factor, params["mscale"]) / _mscale(factor, params["mscale_all_dim"])
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _default(base: Tensor, rope: RopeConfig) -> Tensor:
    return base


def _linear(base: Tensor, rope: RopeConfig) -> Tensor:
    """Position interpolation (Chen et al. 2023)."""
    return base / rope.params["factor"]


def _llama3(base: Tensor, rope: RopeConfig) -> Tensor:
    """Llama 3.1: long wavelengths are divided by factor, short ones kept, between them a blend."""
    p = rope.params
    factor, low, high = p["factor"], p["low_freq_factor"], p["high_freq_factor"]
    context = p["original_max_position_embeddings"]
    wavelength = 2 * math.pi / base
    smooth = (context / wavelength - low) / (high - low)
    blend = (1 - smooth) * base / factor + smooth * base
    scaled = torch.where(wavelength > context / low, base / factor, blend)
    return torch.where(wavelength < context / high, base, scaled)


def _yarn(base: Tensor, rope: RopeConfig) -> Tensor:
    """YaRN (Peng et al. 2023): interpolate channels that turn less than beta_slow times over the
    original context, keep those that turn more than beta_fast times, a ramp between."""
    p = rope.params
    context = p["original_max_position_embeddings"]

    def channel(turns: float) -> float:
        return (
            rope.rotary_dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
        )

    low, high = channel(p.get("beta_fast", 32.0)), channel(p.get("beta_slow", 1.0))
    if p.get("truncate", 1.0):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    ramp = (torch.arange(len(base), dtype=base.dtype) - low) / max(high - low, 0.001)
    keep = 1 - ramp.clamp(0, 1)
    return base / p["factor"] * (1 - keep) + base * keep
