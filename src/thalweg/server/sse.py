"""Server-sent events, and what happens when nobody listens any more."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine

    from starlette.types import Receive, Scope, Send

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """There is nobody to answer."""


def event(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode("utf-8", errors="replace")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes: then `ClientGone`."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait({working, leaving})


def comment(text: str) -> bytes:
    """What clients pass over."""
    return f": {text}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Silence:
    """What is sent when there are no events for so many seconds."""

    seconds: float
    filler: Callable[[], bytes]


class EventStream(Response):
    """Sends events as they come; `on_close` is called whatever happens."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        *,
        silence: Silence,
        on_close: Callable[[], object],
        headers: dict[str, str],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"} | headers)
        del self.headers["content-length"]
        self._events = events
        self._silence = silence
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send_all(send))
        except ClientGone:
            pass
        finally:
            self._on_close()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._events) as events:
            async for chunk in _without_silence(events, self._silence):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _without_silence(events: AsyncIterator[bytes], silence: Silence) -> AsyncIterator[bytes]:
    coming: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(events))
            done, _ = await asyncio.wait({coming}, timeout=silence.seconds)
            if not done:
                yield silence.filler()
                continue
            chunk, coming = coming.result(), None
            if chunk is None:
                return
            yield chunk
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
