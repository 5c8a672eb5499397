"""How a call's answers are sent: as a whole, or as events while they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fastapi.responses import JSONResponse

from thalweg.server.sse import EventStream, Silence, comment, event, while_connected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from thalweg.server.generation import Generation
    from thalweg.server.schemas.fields import GenerationFields
    from thalweg.server.service import Service

PROGRESS_SECONDS = 0.5
"""Between two reports of a prompt's progress."""


class Call(Protocol):
    """Either of these is asked for, once."""

    @property
    def service(self) -> Service: ...

    @property
    def generation(self) -> Generation: ...

    @property
    def body(self) -> GenerationFields: ...

    def head(self, *, is_chunk: bool) -> dict[str, Any]:
        """What all answers of it begin with."""

    async def whole(self) -> dict[str, Any]: ...

    def events(self) -> AsyncGenerator[bytes]: ...


async def respond(request: Request, call: Call) -> Response:
    """Whatever happens meanwhile, nothing of the call is left in the engine."""
    generation = call.generation
    headers = {"X-Request-Id": generation.call_id}
    if call.body.stream:
        return EventStream(
            call.events(),
            silence=_silence(call),
            on_close=generation.cancel,
            headers=headers,
        )
    try:
        return JSONResponse(await while_connected(request.receive, call.whole()), headers=headers)
    finally:
        generation.cancel()


def _silence(call: Call) -> Silence:
    """A comment, with the progress of a long prompt; as an event, and sooner, if that was asked
    for."""
    seconds = call.service.config.keep_alive
    wants_events = call.body.wants_progress

    def filler() -> bytes:
        progress = call.generation.progress
        if progress is None:
            return comment("keep-alive")
        done, total = progress.num_computed, progress.num_prompt
        if not wants_events:
            return comment(f"{done} of {total} prompt tokens")
        counts = {"computed_tokens": done, "prompt_tokens": total}
        return event({**call.head(is_chunk=True), "choices": [], "prompt_progress": counts})

    return Silence(min(seconds, PROGRESS_SECONDS) if wants_events else seconds, filler)
