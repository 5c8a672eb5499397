"""Who may ask: API keys, checked before anything of a request is read."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from thalweg.server.api_errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/", "/health", "/health/live", "/health/ready")
"""The page asks its user for a key; probes have none."""


class ApiKeys:
    """Lets requests through that bring one of the keys as bearer token."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope) and not self._has_key(scope):
            error = ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
            await error.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        return path in OPEN_PATHS or path.startswith("/page/") or scope["method"] == "OPTIONS"

    def _has_key(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        # All are compared, so that the time tells nothing.
        matches = [hmac.compare_digest(token.strip(), key) for key in self._keys]
        return kind.lower() == b"bearer" and any(matches)
