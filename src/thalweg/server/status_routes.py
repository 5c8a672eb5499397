"""How the server and its engine are: `/health`, `/metrics`, `/v1/engine`, `/v1/models`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from starlette.responses import Response

from thalweg.server.api_errors import ApiError
from thalweg.server.usage import timings

if TYPE_CHECKING:
    from starlette.requests import Request

    from thalweg.server.service import Service


async def live(service: Service, request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """It can take requests."""
    if service.engine.failure is not None or service.engine.is_closed:
        raise ApiError(503, "the engine takes no requests", code="unavailable")
    return JSONResponse({"status": "ok"})


async def metrics(service: Service, request: Request) -> Response:
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


async def models(service: Service, request: Request) -> Response:
    return JSONResponse(
        {"object": "list", "data": [_model(service, name) for name in service.model.names]}
    )


async def model(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    service.check_model(name)
    return JSONResponse(_model(service, name))


async def cancel(service: Service, request: Request) -> Response:
    """End a call's answers where they are; whoever waits for them gets what there is."""
    call_id = request.path_params["call_id"]
    if (generation := service.calls.get(call_id)) is None:
        raise ApiError(404, f"no request {call_id!r:.80} is underway", "id", "not_found")
    generation.cancel()
    return JSONResponse({"id": call_id, "object": "request.cancelled"})


async def engine(service: Service, request: Request) -> Response:
    """What the page's panel shows."""
    stats = service.engine.stats()
    recent = [
        {
            "id": output.request_id,
            "prompt_tokens": len(output.prompt_token_ids),
            "generated": output.num_generated,
            "reasons": [answer.finish_reason for answer in output.outputs],
            **timings(output),
        }
        for output in reversed(service.recent)
    ]
    return JSONResponse(
        {
            "running": stats.num_running,
            "waiting": stats.num_waiting,
            "blocks": asdict(stats.blocks),
            "slots": asdict(stats.slots),
            "computed_tokens": stats.num_computed_tokens,
            "prompt_tokens": stats.num_prompt_tokens,
            "cached_tokens": stats.num_cached_tokens,
            "preemptions": stats.num_preemptions,
            "drafted_tokens": stats.drafts.num_drafted,
            "kept_tokens": stats.drafts.num_kept,
            "acceptance": stats.drafts.acceptance,
            "mean_accepted_length": stats.drafts.mean_length,
            "gate": asdict(stats.gate),
            "recent": recent,
            "max_model_len": service.loaded.limits.max_model_len,
            "thinks": service.model.thinks,
            "can_switch_thinking": bool(
                service.model.features and service.model.features.enable_thinking
            ),
        }
    )


def _model(service: Service, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": service.model.created,
        "owned_by": "thalweg",
        "max_model_len": service.loaded.limits.max_model_len,
    }
