"""What the OpenAPI document says of a route: its body, its path, and how it may answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from thalweg.server.schemas.error import Error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fastapi import FastAPI
    from pydantic import BaseModel

REFERENCE = "#/components/schemas/{model}"
ERRORS = {
    400: "Something in the request is wrong, and named.",
    401: "The API key is missing or wrong.",
    403: "The server was called by a name that is not its own.",
    404: "There is no such model, request or path.",
    500: "The server or the model has failed.",
    503: "The engine takes no requests.",
}
ERRORS_OF_A_BODY = {
    413: "The body is too large.",
    415: "The body is not application/json.",
    429: "Too many are waiting: Retry-After says when to come again.",
}


def described(
    path: str, body: type[BaseModel] | None, media_types: Iterable[str]
) -> dict[str, Any]:
    """Options of `FastAPI.add_api_route`; `media_types`: of what is answered."""
    errors = ERRORS | (ERRORS_OF_A_BODY if body is not None else {})
    refused = {"application/json": {"schema": _reference(Error)}}
    extra: dict[str, Any] = {}
    if body is not None:
        content = {"application/json": {"schema": _reference(body)}}
        extra["requestBody"] = {"required": True, "content": content}
    if names := re.findall(r"{(\w+)", path):
        extra["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return {
        "openapi_extra": extra,
        "responses": {
            200: {"content": {kind: {} for kind in media_types}},
            **{status: {"description": why, "content": refused} for status, why in errors.items()},
        },
    }


def document(app: FastAPI, bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        kinds = [*((body, "validation") for body in bodies), (Error, "serialization")]
        _, schemas = models_json_schema(kinds, ref_template=REFERENCE)  # type: ignore[arg-type]  # lists are invariant
        made.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
        app.openapi_schema = made
    return app.openapi_schema


def _reference(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=kind.__name__)}
