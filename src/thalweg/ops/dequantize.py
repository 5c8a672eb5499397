"""Quantised blocks to float32, with the operations of the `gguf` package in its order: same bits.

A quantised row is a run of blocks of fixed size, little-endian: one or two float16 scales, small
integers packed in a few bits each, and for the K types a scale for every 16 or 32 values. ggml's
`ggml-common.h` has the layouts. Integers are unpacked eight at a time, in 64-bit words. Torch-free:
what is small enough for the cache is too small for torch's threads, which would spin instead.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]
    Floats = NDArray[np.float32]

CHUNK_VALUES = 1 << 17
"""Unpacked at once: what lies between the steps stays in the cache."""

LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
BIT_PAIRS = np.uint64(0x0303030303030303)
BITS = np.uint64(0x0101010101010101)
FOUR = np.uint64(4)
FIFTH_BITS: Words = (
    ((np.arange(256)[:, None] >> np.arange(8) & 1) << 4).astype(np.uint8).view(np.uint64).squeeze(1)
)
"""For each byte, its bits as bit 4 of the eight bytes of a word."""


@dataclass(frozen=True, slots=True)
class BlockType:
    num_values: int
    nbytes: int
    unpack: Callable[[Any, Any], None]
    """blocks: [N, nbytes] uint8, out: [N, num_values] float32"""


def dequantize(blocks: Bytes, kind: BlockType, *, out: Floats, num_threads: int = 1) -> None:
    """blocks: uint8, whole blocks; out: as many float32 as they have values"""
    rows = blocks.reshape(-1, kind.nbytes)
    values = out.reshape(len(rows), kind.num_values)
    step = CHUNK_VALUES // kind.num_values
    parts = [slice(start, start + step) for start in range(0, len(rows), step)]
    unpack = partial(_unpack, kind, rows, values)
    if num_threads == 1 or len(parts) == 1:
        for part in parts:
            unpack(part)
    else:
        with ThreadPoolExecutor(num_threads) as pool:
            list(pool.map(unpack, parts))


def _unpack(kind: BlockType, rows: Bytes, values: Floats, part: slice) -> None:
    with np.errstate(all="ignore"):  # A scale may be infinite or no number.
        kind.unpack(rows[part], values[part])


def _q4_0(blocks: Bytes, out: Floats) -> None:
    _fill(out, _nibbles(_words(blocks[:, 2:])), offset=8)
    out *= _scales(blocks, 0)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    _fill(out, _nibbles(_words(blocks[:, 4:])))
    out *= _scales(blocks, 0)
    out += _scales(blocks, 2)


def _q5_0(blocks: Bytes, out: Floats) -> None:
    _fill(out, _nibbles(_words(blocks[:, 6:])) | FIFTH_BITS[blocks[:, 2:6]], offset=16)
    out *= _scales(blocks, 0)


def _q5_1(blocks: Bytes, out: Floats) -> None:
    _fill(out, _nibbles(_words(blocks[:, 8:])) | FIFTH_BITS[blocks[:, 4:8]])
    out *= _scales(blocks, 0)
    out += _scales(blocks, 2)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    out[...] = blocks[:, 2:].view(np.int8)
    out *= _scales(blocks, 0)


def _q4_k(blocks: Bytes, out: Floats) -> None:
    _fill(out, _nibbles(_words(blocks[:, 16:]).reshape(-1, 4, 4)))
    _scale_and_shift(blocks, out)


def _q5_k(blocks: Bytes, out: Floats) -> None:
    codes = _nibbles(_words(blocks[:, 48:]).reshape(-1, 4, 4)).reshape(-1, 8, 4)
    fifth = _words(blocks[:, 16:48])
    for group in range(8):  # Bit i of byte j belongs to value j of group i.
        codes[:, group] |= ((fifth >> np.uint64(group)) & BITS) << FOUR
    _fill(out, codes)
    _scale_and_shift(blocks, out)


def _q6_k(blocks: Bytes, out: Floats) -> None:
    codes = _nibbles(_words(blocks[:, :128]).reshape(-1, 2, 8)).reshape(-1, 2, 4, 4)
    high = _words(blocks[:, 128:192]).reshape(-1, 2, 4)
    for group in range(4):
        codes[:, :, group] |= ((high >> np.uint64(2 * group)) & BIT_PAIRS) << FOUR
    _fill(out, codes, offset=32)
    scales = _scales(blocks, 208) * blocks[:, 192:208].view(np.int8)
    groups = out.reshape(-1, 16, 16)
    groups *= scales[..., None]


def _scale_and_shift(blocks: Bytes, out: Floats) -> None:
    """For codes in eight groups of 32, whose 6-bit scales and offsets are in 12 bytes."""
    low, mixed_low, mixed_high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([low & 0x3F, (mixed_high & 0x0F) | ((low >> 2) & 0x30)], 1)
    offsets = np.concatenate([mixed_low & 0x3F, (mixed_high >> 4) | ((mixed_low >> 2) & 0x30)], 1)
    groups = out.reshape(-1, 8, 32)
    groups *= (_scales(blocks, 0) * scales.astype(np.float32))[..., None]
    groups -= (_scales(blocks, 2) * offsets.astype(np.float32))[..., None]


def _fill(out: Floats, words: Words, *, offset: int = 0) -> None:
    """The bytes of words, less the offset, as numbers."""
    codes = words.reshape(len(out), -1).view(np.int8)
    if offset:
        codes -= np.int8(offset)
    out[...] = codes


def _scales(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte `start` of each block: [N, 1] float32"""
    halves = np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16)
    return halves.astype(np.float32)


def _words(packed: Bytes) -> Words:
    return np.ascontiguousarray(packed).view(np.uint64)


def _nibbles(words: Words) -> Words:
    """words: [..., n] -> [..., 2n]: the low halves of all bytes, then the high halves"""
    return np.concatenate([words & LOW_NIBBLES, (words >> FOUR) & LOW_NIBBLES], -1)


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
