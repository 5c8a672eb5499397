"""Names for blocks of content: equal names mean equal tokens, and equal tokens before them."""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BlockKeys:
    """The chain of keys of a growing token list: each names a full block and all before it."""

    def __init__(self, salt: bytes = b"") -> None:
        """`salt` names what else decides the content: model, adapter, a tenant's secret."""
        self._last = hashlib.blake2b(salt, digest_size=16).digest()
        self.keys: list[bytes] = []

    def extend(self, token_ids: Sequence[int], block_size: int) -> list[bytes]:
        """The keys of all full blocks of `token_ids`, which begin as they did before."""
        for end in range((len(self.keys) + 1) * block_size, len(token_ids) + 1, block_size):
            content = array("q", token_ids[end - block_size : end]).tobytes()
            self._last = hashlib.blake2b(content, key=self._last, digest_size=16).digest()
            self.keys.append(self._last)
        return self.keys
