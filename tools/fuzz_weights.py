"""Random weights of every type that the kernels keep, for the fuzzers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from thalweg.ops.dequantize import BLOCK_TYPES
from thalweg.ops.weight import Blocks

if TYPE_CHECKING:
    import random

    from torch import Tensor

    from thalweg.ops.weight import Stored

FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
KINDS = (*FLOATS, *BLOCK_TYPES)
SCALES = {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}
"""Where the float16 numbers of a block are; at 0 and 2 in the others."""


def unit(kind: str) -> int:
    """What the length of a row is a multiple of."""
    return 1 if kind in FLOATS else BLOCK_TYPES[kind].num_values


def stored(shape: tuple[int, ...], kind: str, rng: random.Random) -> Stored:
    """Random weights of about unit gain, as a checkpoint of that type has them."""
    if kind in FLOATS:
        return (torch.randn(shape) / shape[-1] ** 0.5).to(FLOATS[kind])
    bits = np.random.default_rng(rng.getrandbits(32))
    num_blocks = prod(shape) // unit(kind)
    data = bits.integers(0, 256, (num_blocks, BLOCK_TYPES[kind].nbytes), dtype=np.uint8)

    def scale(largest: float) -> Blocks:
        for start in SCALES.get(kind, (0, 2)):
            scales = (bits.random(num_blocks) * largest).astype(np.float16)
            data[:, start : start + 2] = scales.view(np.uint8).reshape(-1, 2)
        return Blocks(torch.from_numpy(data).view(*shape[:-1], -1), kind)

    size = float(scale(0.01).dense().square().mean() ** 0.5)
    return scale(0.01 / size / shape[-1] ** 0.5)


def same(a: Tensor, b: Tensor) -> None:
    assert torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))
