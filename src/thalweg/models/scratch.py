"""Memory for values that are usually copied elsewhere at once: used again when nobody holds it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL = 1 << 16
"""Elements. To allocate so few costs next to nothing."""
MAX_BUFFERS = 3
"""Of about one size: as many as are held at once while parts of a matrix are joined."""


class Scratch:
    """Hands out float32 arrays that are their holder's for as long as it likes.

    Fresh memory is dear, above all in virtual machines, where the host has to find each page: a
    model took longer to fault in than to dequantise.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, list[NDArray[np.float32]]] = {0: [np.empty(0, np.float32)]}
        self._idle = next(sys.getrefcount(buffer) for buffer in self._buffers[0])
        """References to a buffer that nobody holds: each view of it is one more."""

    def take(self, size: int) -> NDArray[np.float32]:
        """[size], of any content"""
        if size < SMALL:
            return np.empty(size, np.float32)
        # One size class is a power of two: who keeps an array for good keeps at most twice of it.
        buffers = self._buffers.setdefault(size.bit_length(), [])
        for buffer in buffers:
            if len(buffer) >= size and sys.getrefcount(buffer) == self._idle:
                return buffer[:size]
        fresh = np.empty(size, np.float32)
        buffers.append(fresh)
        del buffers[:-MAX_BUFFERS]
        return fresh[:]
