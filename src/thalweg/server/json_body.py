"""A request's body: bounded, strictly UTF-8, strictly JSON, and of the one shape allowed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from thalweg.server.api_errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

Body = TypeVar("Body", bound=BaseModel)
MAX_DEPTH = 64
"""Of lists and objects in one another: more than any schema needs, less than recursion fears."""


async def read_json(request: Request, kind: type[Body], max_size: int) -> Body:
    """The body as `kind`, or an `ApiError` that names what is wrong with it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":  # what a foreign page may send without being asked
        raise ApiError(415, f"content-type = {media_type!r:.80}: application/json is needed")
    data = await _read(request, max_size)
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start}") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deep") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is a {type(value).__name__}, not a JSON object")
    if _depth(value) > MAX_DEPTH:
        raise ApiError(400, f"the body is nested more than {MAX_DEPTH} levels deep")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _first_problem(error.errors(include_url=False)[0]) from None


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """What the OpenAPI document says of it, as `openapi_extra`."""
    reference = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}
    }


async def _read(request: Request, max_size: int) -> bytes:
    too_large = ApiError(413, f"the body is larger than {max_size} bytes", code="body_too_large")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_size:
        raise too_large
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_size:
            raise too_large
    return bytes(data)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for part in inner for each in part if isinstance(each, (dict, list))]
    return depth


def _first_problem(problem: Mapping[str, Any]) -> ApiError:
    location = problem["loc"]
    fields = [part for part in location if not _names_a_type(part)]
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in fields).lstrip(".")
    if problem["type"] == "extra_forbidden":
        return ApiError(400, f"{name}: unknown field", name, "unknown_parameter")
    given = "" if problem["type"] == "missing" else f" = {problem['input']!r:.80}"
    return ApiError(400, f"{name}{given}: {problem['msg']}", name or None)


def _names_a_type(part: int | str) -> bool:
    """Where several types are allowed, the location says which of them was tried."""
    return isinstance(part, str) and (
        part in ("str", "int", "float", "bool") or "[" in part or part[:1].isupper()
    )
