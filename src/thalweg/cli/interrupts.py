"""Ctrl-C as something to look at between two pieces of work, not an exception in the middle."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Interrupts:
    """While entered, the first Ctrl-C only sets `requested`, so that a pass of the engine is never
    torn apart; one more before that was seen raises `KeyboardInterrupt` as usual."""

    def __init__(self) -> None:
        self.requested = False
        self._at_once = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def take(self) -> bool:
        """Whether Ctrl-C came since this was last asked."""
        requested, self.requested = self.requested, False
        return requested

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In here Ctrl-C raises `KeyboardInterrupt` at once, also one that came just before."""
        self._at_once = True
        try:
            if self.take():
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._at_once or self.requested:
            raise KeyboardInterrupt
        self.requested = True
