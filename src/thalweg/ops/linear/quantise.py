"""Rounds a matrix to values that groups of few bits hold, as GGUF's Q8_0 and Q4_0 do.

The result is a float32 matrix like any other, so every kernel computes with it; the packed kernels
notice that it fits fewer bits and keep it so.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32
KINDS = ("q8", "q4")


def quantised(weight: Tensor, kind: str) -> Tensor:
    """weight: [..., K] -> the same shape in float32; as it was where K is no multiple of 32.

    Each 32 neighbours along K share a float16 scale. q8: codes -127 .. 127 times max |w| / 127.
    q4: codes -8 .. 7; the value of largest magnitude has code -8.
    """
    weight = weight.float()
    if weight.shape[-1] % GROUP:
        return weight
    groups = weight.unflatten(-1, (-1, GROUP))
    if kind == "q8":
        scale = groups.abs().amax(-1, keepdim=True) / 127
        codes = (groups / scale).round()
    else:
        assert kind == "q4", kind
        scale = groups.gather(-1, groups.abs().argmax(-1, keepdim=True)) / -8
        codes = (groups / scale + 8.5).floor().clamp(0, 15) - 8
    values = codes.nan_to_num(0) * scale.to(torch.float16).float()  # a group of zeros has scale 0
    return values.flatten(-2)
