"""The engine behind asyncio: one thread makes all steps, any number of tasks wait for answers."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Self

from thalweg.engine.recovery import Failure, Recovery
from thalweg.engine.stream import RequestStream
from thalweg.errors import EngineClosed, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from thalweg.engine.engine import Engine, StepOutput
    from thalweg.engine.metrics import EngineStats
    from thalweg.engine.outputs import Progress
    from thalweg.scheduler.request import Request


class AsyncEngine:
    """Owns an engine: nothing else may call it until `close`. Make it inside a running event loop.

    The thread sleeps while there is nothing to do, and between two steps it takes what has come:
    new requests and cancellations. A request that fails ends alone; if the thread itself fails,
    all that is underway does, and `failure` says why.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recovery = Recovery(engine)
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, RequestStream] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.failure: BaseException | None = None
        self._wake = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()  # guarded by _wake, as is _stop
        self._stop = False
        self._thread = threading.Thread(target=self._work, name="thalweg-engine", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """It takes no more requests."""
        return self._closed

    def stats(self) -> EngineStats:
        """Counters, queues and pools."""
        return self._engine.stats()

    def progress(self, request_id: str) -> Progress | None:
        """How far a prompt is; None once its first token is there or it has ended."""
        return self._engine.progress(request_id)

    @property
    def num_requests(self) -> int:
        """Requests that were submitted and have not ended."""
        return len(self._streams)

    def submit(
        self,
        request: Request,
        prompt: str | None = None,
        *,
        on_end: Callable[[RequestStream], None] | None = None,
    ) -> RequestStream:
        """Queue an admitted request; `prompt` is its text, for the output. `on_end` is called once,
        however it ends and whoever listens.

        Raises `EngineClosed` once the engine drains, is closed or has failed.
        """
        if self._closed or self.failure is not None:
            raise EngineClosed("the engine takes no more requests")
        if request.id in self._streams:
            raise RequestError(f"request id {request.id!r} is in use")
        stream = RequestStream(request.id, partial(self.cancel, request.id), on_end)
        self._streams[request.id] = stream
        self._idle.clear()
        self._send(partial(self._add, request, prompt))
        return stream

    def cancel(self, request_id: str) -> bool:
        """End a request before the next step; False if there is none of this id. Its stream ends
        with finish reason `abort`."""
        if request_id not in self._streams:
            return False
        self._send(partial(self._abort, request_id))
        return True

    async def drain(self) -> None:
        """Take no more requests, and wait until those underway have ended."""
        self._closed = True
        await self._idle.wait()

    async def close(self) -> None:
        """End what is underway and the thread. The engine is the caller's again."""
        self._closed = True
        for request_id in tuple(self._streams):
            self.cancel(request_id)
        await self._idle.wait()
        with self._wake:
            self._stop = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    def _send(self, command: Callable[[], None]) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _work(self) -> None:
        try:
            while self._take_commands():
                if self._engine.has_work:
                    step = self._recovery.step()
                    if isinstance(step, Failure):
                        self._tell(partial(self._fail, step.request_id, step.error))
                    elif step.deltas or step.finished:
                        self._tell(partial(self._deliver, step))
        except BaseException as error:  # whatever it was, nobody may wait for ever
            self._tell(partial(self._fail_all, error))

    def _take_commands(self) -> bool:
        """False when it is time to stop."""
        with self._wake:
            while not (self._commands or self._stop or self._engine.has_work):
                self._wake.wait()
            commands = tuple(self._commands)
            self._commands.clear()
            stop = self._stop
        for command in commands:
            command()
        return not stop

    def _add(self, request: Request, prompt: str | None) -> None:
        try:
            self._engine.add_request(request, prompt)
        except RequestError as error:
            self._tell(partial(self._fail, request.id, error))
        else:
            self._tell(self._streams[request.id].accept)

    def _abort(self, request_id: str) -> None:
        if self._engine.is_underway(request_id):  # it may have ended in the last step
            self._tell(partial(self._deliver, self._engine.cancel(request_id)))

    def _tell(self, event: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(event)
        except RuntimeError:  # the loop is closed: there is nobody left to tell
            with self._wake:
                self._stop = True

    def _deliver(self, step: StepOutput) -> None:
        for delta in step.deltas:
            self._streams[delta.request_id].push(delta)
        for output in step.finished:
            self._take(output.request_id).end(output)

    def _fail(self, request_id: str, error: Exception) -> None:
        self._take(request_id).fail(error)

    def _fail_all(self, error: BaseException) -> None:
        self.failure = error
        for request_id in tuple(self._streams):
            self._fail(request_id, EngineClosed(f"the engine failed: {error!r}"))

    def _take(self, request_id: str) -> RequestStream:
        stream = self._streams.pop(request_id)
        if not self._streams:
            self._idle.set()
        return stream
