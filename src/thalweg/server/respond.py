"""How a call's answers are sent: as a whole, or as events while they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fastapi.responses import JSONResponse

from thalweg.server.sse import EventStream, while_connected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from thalweg.server.generation import Generation
    from thalweg.server.service import Service


class Call(Protocol):
    """Either of these is asked for, once."""

    @property
    def service(self) -> Service: ...

    @property
    def generation(self) -> Generation: ...

    async def whole(self) -> dict[str, Any]: ...

    def events(self) -> AsyncGenerator[bytes]: ...


async def respond(request: Request, call: Call, *, stream: bool | None) -> Response:
    """Whatever happens meanwhile, nothing of the call is left in the engine."""
    generation = call.generation
    headers = {"X-Request-Id": generation.call_id}
    if stream:
        return EventStream(
            call.events(),
            keep_alive=call.service.config.keep_alive,
            on_close=generation.cancel,
            headers=headers,
        )
    try:
        return JSONResponse(await while_connected(request.receive, call.whole()), headers=headers)
    finally:
        generation.cancel()
