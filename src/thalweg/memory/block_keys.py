"""Names for blocks of content: equal names mean equal tokens, and equal tokens before them."""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


TOKEN_SIZE = array("q").itemsize


class BlockKeys:
    """The chain of keys of a growing token list: each names a full block and all before it."""

    def __init__(self, salt: bytes = b"") -> None:
        """`salt` names what else decides the content: model, adapter, a tenant's secret."""
        self.root = self._last = hashlib.blake2b(salt, digest_size=16).digest()
        self.keys: list[bytes] = []
        self.contents: list[bytes] = []
        """Of the same blocks."""

    def extend(self, token_ids: Sequence[int], block_size: int) -> list[bytes]:
        """The keys of all full blocks of `token_ids`, which begin as they did before."""
        for end in range((len(self.keys) + 1) * block_size, len(token_ids) + 1, block_size):
            content = block_content(token_ids[end - block_size : end])
            self._last = hashlib.blake2b(content, key=self._last, digest_size=16).digest()
            self.keys.append(self._last)
            self.contents.append(content)
        return self.keys

    def before(self, i: int) -> bytes:
        """The key of the block before block `i`; the first one follows the salt."""
        return self.keys[i - 1] if i else self.root


def block_content(token_ids: Sequence[int]) -> bytes:
    return array("q", token_ids).tobytes()
