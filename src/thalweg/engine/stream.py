"""One request's answers on their way from the engine's thread to an asyncio task."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from thalweg.engine.outputs import Delta, RequestOutput


class RequestStream:
    """Iterate for the pieces of all of a request's answers; `output` is there when they end.

    The iteration raises what the request failed with. Leaving the `async with` block, for whatever
    reason, ends the request. A consumer that is slower than the engine delays nobody: pieces it
    has not taken yet are joined, so what waits for it is never more than one answer's text.
    """

    def __init__(
        self,
        request_id: str,
        abandon: Callable[[], object],
        on_end: Callable[[RequestStream], None] | None = None,
    ) -> None:
        self.request_id = request_id
        self.output: RequestOutput | None = None
        self.error: Exception | None = None
        self._accepted = False
        self._abandon = abandon
        self._on_end = on_end
        self._waiting: deque[Delta] = deque()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        while not self._waiting:
            if self.error is not None:
                raise self.error
            if self.output is not None:
                raise StopAsyncIteration
            await self._wait()
        return self._waiting.popleft()

    @property
    def has_ended(self) -> bool:
        return self.output is not None or self.error is not None

    async def accepted(self) -> None:
        """Wait until the engine has queued it; raises `QueueFull` if it has not."""
        while not (self._accepted or self.has_ended):
            await self._wait()
        if self.error is not None and not self._accepted:
            raise self.error

    def cancel(self) -> None:
        """End the request if it has not ended. The iteration goes on to its end, which is near:
        the engine gives everything back within two steps."""
        if not self.has_ended:
            self._abandon()

    async def collect(self) -> RequestOutput:
        """Wait for the whole."""
        async for _ in self:
            pass
        assert self.output is not None
        return self.output

    def accept(self) -> None:
        self._accepted = True
        self._changed.set()

    def push(self, delta: Delta) -> None:
        """A piece from the engine, in the event loop's thread."""
        for i, earlier in enumerate(self._waiting):
            if earlier.index == delta.index:
                self._waiting[i] = _joined(earlier, delta)
                break
        else:
            self._waiting.append(delta)
        self._changed.set()

    def end(self, output: RequestOutput) -> None:
        self.output = output
        self._ended()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._ended()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _ended(self) -> None:
        self._changed.set()
        if self._on_end is not None:
            self._on_end(self)


def _joined(first: Delta, second: Delta) -> Delta:
    return replace(
        first,
        text=first.text + second.text,
        tokens=first.tokens + second.tokens,
        finish_reason=second.finish_reason,
    )
