"""Which known blocks follow a known block: where exactly does a prompt leave them?"""

from __future__ import annotations

from collections import defaultdict

from thalweg.memory.block_keys import TOKEN_SIZE


class Siblings:
    """Contents of blocks by the key of the block before them."""

    def __init__(self) -> None:
        self._contents: defaultdict[bytes, dict[bytes, bytes]] = defaultdict(dict)

    def add(self, parent: bytes, key: bytes, content: bytes) -> None:
        self._contents[parent][key] = content

    def remove(self, parent: bytes, key: bytes) -> None:
        del self._contents[parent][key]
        if not self._contents[parent]:
            del self._contents[parent]

    def num_shared(self, parent: bytes, content: bytes) -> int | None:
        """How many tokens of `content` the nearest of a block's successors begins with; None: it
        has none."""
        if parent not in self._contents:
            return None
        return max(_num_equal(content, known) for known in self._contents[parent].values())


def _num_equal(a: bytes, b: bytes) -> int:
    ends = range(TOKEN_SIZE, min(len(a), len(b)) + 1, TOKEN_SIZE)
    unequal = (
        i for i, end in enumerate(ends) if a[end - TOKEN_SIZE : end] != b[end - TOKEN_SIZE : end]
    )
    return next(unequal, len(ends))
