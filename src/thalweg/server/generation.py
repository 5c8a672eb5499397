"""One API call's requests on their way through the engine."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from thalweg.engine.outputs import Progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from thalweg.engine.admission import Admitted
    from thalweg.engine.outputs import Delta, RequestOutput
    from thalweg.engine.stream import RequestStream
    from thalweg.server.service import Service


class Generation:
    """Whoever starts one must `cancel` it in the end, which does nothing to what has ended."""

    def __init__(self, service: Service, call_id: str) -> None:
        self.call_id = call_id
        self.created = int(time.time())
        self._service = service
        self._streams: list[RequestStream] = []

    @classmethod
    async def start(
        cls,
        service: Service,
        call_id: str,
        admitted: Sequence[Admitted],
        *,
        labels: Mapping[str, Any],
    ) -> Generation:
        """All of them, or none and `QueueFull`."""
        self = cls(service, call_id)
        on_end = partial(service.ended, labels=labels)
        try:
            for each in admitted:
                stream = service.engine.submit(each.request, each.text, on_end=on_end)
                self._streams.append(stream)
            service.calls[call_id] = self
            for stream in self._streams:
                await stream.accepted()
        except BaseException:
            self.cancel()
            raise
        return self

    def cancel(self) -> None:
        self._service.calls.pop(self.call_id, None)
        for stream in self._streams:
            stream.cancel()

    @property
    def outputs(self) -> list[RequestOutput]:
        """Once `pieces` has ended."""
        return [stream.output for stream in self._streams if stream.output is not None]

    @property
    def progress(self) -> Progress | None:
        """How far its prompts are; None once all answers have begun."""
        engine = self._service.engine
        found = [engine.progress(stream.request_id) for stream in self._streams]
        begun = [each for each in found if each is not None]
        if not begun:
            return None
        return Progress(
            sum(each.num_computed for each in begun), sum(each.num_prompt for each in begun)
        )

    async def pieces(self) -> AsyncIterator[tuple[int, Delta]]:
        """(which request, a piece of it), of all of them as they come. Raises what one fails
        with."""
        if len(self._streams) == 1:
            async for delta in self._streams[0]:
                yield 0, delta
            return
        inbox: asyncio.Queue[tuple[int, Delta] | None] = asyncio.Queue()

        async def forward(place: int, stream: RequestStream) -> None:
            try:
                async for delta in stream:
                    inbox.put_nowait((place, delta))
            finally:
                inbox.put_nowait(None)

        tasks = [asyncio.create_task(forward(i, each)) for i, each in enumerate(self._streams)]
        try:
            for _ in tasks:
                while (item := await inbox.get()) is not None:
                    yield item
            for task in tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
