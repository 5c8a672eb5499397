"""The routes, and what every one of them has around it."""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request  # noqa: TC002  FastAPI looks at it at run time
from starlette.responses import Response

from thalweg.engine.async_engine import AsyncEngine
from thalweg.errors import QueueFull, ThalwegError
from thalweg.server import status_routes
from thalweg.server.api_errors import ApiError, as_api_error
from thalweg.server.chat import create_chat_completion
from thalweg.server.completions import create_completion
from thalweg.server.metrics import Metrics
from thalweg.server.openapi import described, document
from thalweg.server.page_routes import add_page
from thalweg.server.request_log import RequestLog
from thalweg.server.schemas.chat_request import ChatRequest
from thalweg.server.schemas.completion_request import CompletionRequest
from thalweg.server.schemas.text_requests import DetokenizeRequest, TokenizeRequest
from thalweg.server.security import ApiKeys, KnownHosts, is_loopback
from thalweg.server.service import ModelFacts, Service
from thalweg.server.sse import ClientGone
from thalweg.server.tags import ALL_TAGS, tag_ids
from thalweg.server.text_routes import detokenize, tokenize
from thalweg.text.grammar import GrammarCompiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pydantic import BaseModel

    from thalweg.config.server import ServerConfig
    from thalweg.engine.loading import LoadedEngine

    Handler = Callable[[Service, Request], Awaitable[Response]]

BODIES: dict[str, tuple[Handler, type[BaseModel]]] = {
    "/v1/chat/completions": (create_chat_completion, ChatRequest),
    "/v1/completions": (create_completion, CompletionRequest),
    "/tokenize": (tokenize, TokenizeRequest),
    "/detokenize": (detokenize, DetokenizeRequest),
}
JSON = "application/json"
MEDIA_TYPES = {
    "/v1/chat/completions": (JSON, "text/event-stream"),
    "/v1/completions": (JSON, "text/event-stream"),
    "/metrics": ("text/plain",),
}
PLAIN = {
    "/v1/models": status_routes.models,
    "/v1/models/{name:path}": status_routes.model,
    "/v1/engine": status_routes.engine,
    "/health": status_routes.ready,
    "/health/live": status_routes.live,
    "/health/ready": status_routes.ready,
    "/metrics": status_routes.metrics,
}


def build_app(loaded: LoadedEngine, config: ServerConfig, *, name: str) -> FastAPI:
    """An application that owns a loaded engine from its start-up to its shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncEngine(loaded.engine) as engine:
            app.state.service = Service(
                config=config,
                loaded=loaded,
                engine=engine,
                model=ModelFacts.of(loaded, config, name=name, now=int(time.time())),
                grammars=GrammarCompiler(
                    loaded.tokenizer,
                    eos_ids=loaded.limits.eos_ids,
                    text_ids=tag_ids(loaded.tokenizer, ALL_TAGS),
                ),
                metrics=Metrics(engine.stats),
                log=RequestLog(as_json=config.log_json),
            )
            yield

    app = FastAPI(
        title="Thalweg",
        description="An OpenAI-compatible server for hybrid language models.",
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    for path, (handler, body) in BODIES.items():
        _add(app, "POST", path, handler, body=body)
    for path, plain in PLAIN.items():
        _add(app, "GET", path, plain)
    _add(app, "POST", "/v1/requests/{call_id}/cancel", status_routes.cancel)
    add_page(app)
    for kind in (ApiError, ThalwegError, HTTPException, ClientGone):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(Exception, _confess)
    if config.api_keys:
        app.add_middleware(ApiKeys, keys=config.api_keys)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    if config.allowed_hosts or is_loopback(config.host):
        app.add_middleware(KnownHosts, names=(config.host, *config.allowed_hosts))
    bodies = [body for _, body in BODIES.values()]
    app.openapi = lambda: document(app, bodies)  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _add(
    app: FastAPI,
    method: str,
    path: str,
    handler: Handler,
    *,
    body: type[BaseModel] | None = None,
) -> None:
    async def endpoint(request: Request) -> Response:
        return await handler(request.app.state.service, request)

    app.add_api_route(
        path,
        endpoint,
        methods=[method],
        name=handler.__name__,
        description=handler.__doc__ or "",
        response_class=Response,
        **described(path, body, MEDIA_TYPES.get(path, (JSON,))),
    )


async def _refuse(request: Request, error: Exception) -> Response:
    match error:
        case ClientGone():
            return Response(status_code=499)
        case ApiError():
            answer = error
        case QueueFull():
            answer = ApiError(429, str(error), code="queue_full", retry_after=1)
        case ThalwegError():
            answer = as_api_error(error)
        case HTTPException():
            answer = ApiError(
                error.status_code, f"{request.method} {request.url.path}: {error.detail}"
            )
        case _:
            raise error
    service: Service = request.app.state.service
    service.metrics.refused(answer.status)
    service.log.refused(request.url.path, answer)
    return answer.response()


async def _confess(request: Request, error: Exception) -> Response:
    """A fault of ours; starlette raises it again for the log once this is sent."""
    logging.getLogger("thalweg.server").error("a request failed", exc_info=error)
    return ApiError(500, "the server has failed to answer this request").response()
