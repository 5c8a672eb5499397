"""Rounds a matrix to groups of few bits, in the blocks of GGUF's Q8_0 and Q4_0."""

from __future__ import annotations

import torch
from torch import Tensor

from thalweg.config.engine import QUANTIZE
from thalweg.ops.weight import GROUP, Blocks

CHUNK_VALUES = 1 << 22
"""Rounded at once: a matrix is never as a whole in float32."""


def quantised(weight: Tensor, kind: str) -> Blocks:
    """weight: [..., K], K a multiple of 32 -> the same shape, in blocks.

    Each 32 neighbours along K share a float16 scale. q8: codes -127 .. 127 times max |w| / 127.
    q4: codes -8 .. 7; the value of largest magnitude has code -8.
    """
    rows = weight.reshape(-1, weight.shape[-1])
    step = max(1, CHUNK_VALUES // rows.shape[1])
    rounded = [_q8(part) if kind == "q8" else _q4(part) for part in rows.split(step)]
    return Blocks(torch.cat(rounded).view(*weight.shape[:-1], -1), QUANTIZE[kind])


def _q8(rows: Tensor) -> Tensor:
    groups = rows.float().unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 127
    scaled = groups * _inverse(scale)
    codes = (scaled.abs() + 0.5).floor().copysign(scaled)  # halves away from 0, as llama.cpp does
    return _blocks(scale, codes.to(torch.int8).view(torch.uint8))


def _q4(rows: Tensor) -> Tensor:
    groups = rows.float().unflatten(-1, (-1, GROUP))
    scale = groups.gather(-1, groups.abs().argmax(-1, keepdim=True)) / -8
    scaled = groups * _inverse(scale)
    codes = (scaled + 8.5).floor().clamp(0, 15).to(torch.uint8)
    low, high = codes.unflatten(-1, (2, -1)).unbind(-2)
    return _blocks(scale, low | high << 4)


def _inverse(scale: Tensor) -> Tensor:
    """0 for a group of zeros."""
    return torch.where(scale == 0, 0, 1 / scale)


def _blocks(scale: Tensor, codes: Tensor) -> Tensor:
    """scale: [N, groups, 1], codes: [N, groups, bytes] uint8 -> [N, bytes of a row]"""
    return torch.cat([scale.to(torch.float16).view(torch.uint8), codes], -1).flatten(1)
