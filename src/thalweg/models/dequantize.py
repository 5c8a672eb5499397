"""Quantised blocks to float32, with the operations of the `gguf` package in its order: same bits.

A quantised row is a run of blocks of fixed size, little-endian: one or two float16 scales, small
integers packed in a few bits each, and for the K types a scale for every 16 or 32 values. ggml's
`ggml-common.h` has the layouts. Integers are unpacked eight at a time, in 64-bit words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CHUNK_VALUES = 1 << 18
"""Unpacked at once: what lies between the steps stays in the cache."""

LOW_NIBBLES = 0x0F0F0F0F0F0F0F0F
BIT_PAIRS = 0x0303030303030303
BITS = 0x0101010101010101


@dataclass(frozen=True, slots=True)
class BlockType:
    num_values: int
    nbytes: int
    unpack: Callable[[Tensor, Tensor], None]
    """blocks: [N, nbytes] uint8, out: [N, num_values] float32"""


def dequantize(blocks: Tensor, kind: BlockType) -> Tensor:
    """blocks: uint8, whole blocks -> their values, [numel] float32"""
    rows = blocks.view(-1, kind.nbytes)
    # From numpy, which asks the kernel for huge pages: faulting small ones takes longer than the
    # arithmetic.
    values = torch.from_numpy(np.empty((len(rows), kind.num_values), np.float32))
    step = CHUNK_VALUES // kind.num_values
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        kind.unpack(rows[part], values[part])
    return values.flatten()


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    codes = _nibbles(_words(blocks[:, 2:]))
    torch.mul(_scales(blocks, 0), _centered(codes, 8), out=out)


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    torch.mul(_scales(blocks, 0), _nibbles(_words(blocks[:, 4:])).view(torch.uint8), out=out)
    out += _scales(blocks, 2)


def _q5_0(blocks: Tensor, out: Tensor) -> None:
    codes = _nibbles(_words(blocks[:, 6:])) | _fifth_bits(blocks[:, 2:6])
    torch.mul(_scales(blocks, 0), _centered(codes, 16), out=out)


def _q5_1(blocks: Tensor, out: Tensor) -> None:
    codes = _nibbles(_words(blocks[:, 8:])) | _fifth_bits(blocks[:, 4:8])
    torch.mul(_scales(blocks, 0), codes.view(torch.uint8), out=out)
    out += _scales(blocks, 2)


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    torch.mul(blocks[:, 2:].view(torch.int8), _scales(blocks, 0), out=out)


def _q4_k(blocks: Tensor, out: Tensor) -> None:
    codes = _nibbles(_words(blocks[:, 16:]).view(-1, 4, 4))
    _scale_and_shift(codes.view(torch.uint8).view(-1, 8, 32), blocks, out)


def _q5_k(blocks: Tensor, out: Tensor) -> None:
    codes = _nibbles(_words(blocks[:, 48:]).view(-1, 4, 4)).view(-1, 8, 4)
    fifth = _words(blocks[:, 16:48])
    for group in range(8):  # Bit i of byte j belongs to value j of group i.
        codes[:, group] |= ((fifth >> group) & BITS) << 4
    _scale_and_shift(codes.view(torch.uint8), blocks, out)


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    codes = _nibbles(_words(blocks[:, :128]).view(-1, 2, 8)).view(-1, 2, 4, 4)
    high = _words(blocks[:, 128:192]).view(-1, 2, 4)
    for group in range(4):
        codes[:, :, group] |= ((high >> 2 * group) & BIT_PAIRS) << 4
    scales = _scales(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    values = _centered(codes.view(-1, 32), 32).view(-1, 16, 16)
    torch.mul(scales[..., None], values, out=out.view(-1, 16, 16))


def _scale_and_shift(codes: Tensor, blocks: Tensor, out: Tensor) -> None:
    """codes: [N, 8, 32]; their 6-bit scales and offsets are packed into 12 bytes."""
    low, mixed_low, mixed_high = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat([low & 0x3F, (mixed_high & 0x0F) | ((low >> 2) & 0x30)], 1)
    offsets = torch.cat([mixed_low & 0x3F, (mixed_high >> 4) | ((mixed_low >> 2) & 0x30)], 1)
    groups = out.view(-1, 8, 32)
    torch.mul((_scales(blocks, 0) * scales)[..., None], codes, out=groups)
    groups -= (_scales(blocks, 2) * offsets)[..., None]


def _scales(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of each block: [N, 1] float32"""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _words(packed: Tensor) -> Tensor:
    return packed.contiguous().view(torch.int64)


def _nibbles(words: Tensor) -> Tensor:
    """words: [..., n] -> [..., 2n]: the low halves of all bytes, then the high halves"""
    return torch.cat([words & LOW_NIBBLES, (words >> 4) & LOW_NIBBLES], -1)


def _fifth_bits(packed: Tensor) -> Tensor:
    """packed: [N, 4] uint8 -> [N, 4] words: bit i of the 32 as bit 4 of byte i"""
    return _spread_bits()[packed.int()]


@cache
def _spread_bits() -> Tensor:
    """For each byte, its bits as bit 4 of the eight bytes of a word."""
    bits = torch.arange(256)[:, None] >> torch.arange(8) & 1
    return (bits << 4).to(torch.uint8).view(torch.int64).squeeze(1)


def _centered(words: Tensor, offset: int) -> Tensor:
    return words.view(torch.int8) - offset


BLOCK_TYPES = {
    "Q4_0": BlockType(32, 18, _q4_0),
    "Q4_1": BlockType(32, 20, _q4_1),
    "Q5_0": BlockType(32, 22, _q5_0),
    "Q5_1": BlockType(32, 24, _q5_1),
    "Q8_0": BlockType(32, 34, _q8_0),
    "Q4_K": BlockType(256, 144, _q4_k),
    "Q5_K": BlockType(256, 176, _q5_k),
    "Q6_K": BlockType(256, 210, _q6_k),
}
"""By ggml's names."""
