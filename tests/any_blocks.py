"""Quantised blocks of any bytes, as a file may hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Where the float16 numbers of a block are."""


def any_blocks(name: str, num_blocks: int) -> NDArray[np.uint8]:
    """Any bytes; scales of every finite value, subnormals and both zeros among them."""
    random = np.random.default_rng(sum(name.encode()))
    nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = random.integers(0, 256, (num_blocks, nbytes), dtype=np.uint8)
    for start in SCALES[name]:
        high = blocks[:, start + 1]
        infinite = (high & 0x7C) == 0x7C
        high[infinite] &= 0xBF
        blocks[:3, start : start + 2] = [[0, 0], [0, 0x80], [1, 0]]
    return blocks
