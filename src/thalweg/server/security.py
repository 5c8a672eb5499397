"""Who may ask, checked before anything of a request is read."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING

from thalweg.server.api_errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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


class KnownHosts:
    """Lets requests through that were sent to a name of this server.

    A page from elsewhere can make its own name point here and then ask as if it came from here
    (DNS rebinding), but the name that it asks for stays its own.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if not self._knows(_without_port(given)):
                message = f"host = {given!r:.80} is not this server: see --allowed-host"
                error = ApiError(403, message, code="unknown_host")
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _knows(self, name: str) -> bool:
        return name in self._names or is_loopback(name)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
