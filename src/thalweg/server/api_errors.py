"""Everything that is answered with an error has OpenAI's shape and names what was wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse

from thalweg.errors import EngineClosed, RequestError, ThalwegError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

_NAMED = re.compile(
    r"(?:token id \S+ in )?([a-z_]\w*(?:\[[^\]]*\]|\.\w+)*) (?:= |of type |is |has )"
)


@dataclass
class ApiError(Exception):
    """An answer other than 200."""

    status: int
    message: str
    param: str | None = None
    """The field that was wrong."""
    code: str | None = None
    retry_after: int | None = None
    """Seconds until the same request may be taken."""

    def body(self) -> dict[str, Any]:
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        headers: Mapping[str, str] = {}
        if self.retry_after is not None:
            headers = {"Retry-After": str(self.retry_after)}
        elif self.status == 401:
            headers = {"WWW-Authenticate": "Bearer"}
        return JSONResponse(self.body(), self.status, headers)


def invalid(param: str, message: str) -> ApiError:
    return ApiError(400, f"{param}: {message}", param)


def as_api_error(error: ThalwegError) -> ApiError:
    """What an engine's refusal is to a client."""
    message = str(error)
    match error:
        case EngineClosed():
            return ApiError(503, message, code="unavailable")
        case RequestError():
            named = _NAMED.match(message)
            return ApiError(400, message, named[1] if named else None)
        case _:
            return ApiError(500, message)
