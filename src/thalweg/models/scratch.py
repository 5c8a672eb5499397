"""Memory for values that are usually copied elsewhere at once: used again when nobody holds it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGE = 1 << 20
"""Elements. What is smaller costs next to nothing to allocate."""


class Scratch:
    """Hands out float32 arrays that are their holder's for as long as it likes.

    Fresh memory is dear, above all in virtual machines, where the host has to find each page: a
    large model took longer to fault in than to dequantise.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.float32)
        self._references = sys.getrefcount(self._buffer)
        """While no part of it is in use: each view holds one more."""

    def take(self, size: int) -> NDArray[np.float32]:
        """[size], of any content"""
        free = sys.getrefcount(self._buffer) == self._references
        # What is taken may be kept for good, so little must not hold on to much.
        if free and len(self._buffer) // 4 <= size <= len(self._buffer):
            return self._buffer[:size]
        fresh = np.empty(size, np.float32)
        if size >= LARGE and not (free and size < len(self._buffer)):
            self._buffer = fresh
            return fresh[:]
        return fresh
