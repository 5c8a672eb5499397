"""Reference-counted ids: who may write is a count of one."""

from __future__ import annotations

from collections import Counter

from thalweg.ids import NULL


class Pool:
    """Ids 1 to size-1, each free or held by one or more owners. Id 0 (NULL) is never handed out."""

    def __init__(self, size: int) -> None:
        assert size >= 1
        self.size = size
        self._free = list(range(size - 1, NULL, -1))
        self._refs: Counter[int] = Counter()

    def acquire(self) -> int:
        """A free id with one owner. The caller has checked `num_free`."""
        i = self._free.pop()
        self._refs[i] = 1
        return i

    def share(self, i: int) -> int:
        """One more owner of an id that is held; NULL is owned by everyone and not counted."""
        if i != NULL:
            assert self._refs[i] > 0, f"id {i} is free and cannot be shared"
            self._refs[i] += 1
        return i

    def release(self, i: int) -> None:
        """One owner less; the last one frees the id."""
        if i == NULL:
            return
        assert self._refs[i] > 0, f"id {i} is released twice"
        self._refs[i] -= 1
        if self._refs[i] == 0:
            del self._refs[i]
            self._free.append(i)

    def exclusive(self, i: int) -> bool:
        """Held by exactly one owner, who alone may write there."""
        return self._refs[i] == 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self._refs)
