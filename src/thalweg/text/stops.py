"""Stop strings, found in a stream of text pieces of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopChecker:
    """Ends a text at the stop string that is complete first.

    Of two that are completed by the same character the longer one counts. What is emitted depends
    on the text alone, never on how it was cut into pieces. `matched` is the stop string found.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        if "" in stops:
            raise RequestError("stop = '' is not allowed: non-empty strings")
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._held = ""
        self.matched: str | None = None

    def push(self, delta: str) -> tuple[str, bool]:
        """Text that may be shown now, and whether the end is reached: push nothing after that.

        A tail that could still become a stop string is held back.
        """
        assert self.matched is None, "the text has already ended"
        text = self._held + delta
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            end, start, self.matched = min(found)
            self._held = ""
            return text[: end if self._include_stop else start], True
        keep = len(text) - self._num_ambiguous(text)
        self._held = text[keep:]
        return text[:keep], False

    def flush(self) -> str:
        """The tail held back, for a text that ended of itself."""
        held, self._held = self._held, ""
        return held

    def _num_ambiguous(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            tail = text[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
