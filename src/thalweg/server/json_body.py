"""A request's body: bounded, strictly UTF-8, strictly JSON, and of the one shape allowed."""

from __future__ import annotations

import asyncio
import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from thalweg.server.api_errors import ApiError, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

Body = TypeVar("Body", bound=BaseModel)
MAX_DEPTH = 64
"""Of lists and objects in one another: more than any schema needs, less than recursion fears."""
LARGE = 100_000
"""Bytes of a body that is read beside the event loop rather than in it."""


async def read_json(request: Request, kind: type[Body], max_size: int) -> Body:
    """The body as `kind`, or an `ApiError` that names what is wrong with it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":  # what a foreign page may send without being asked
        raise ApiError(415, f"content-type = {media_type!r:.80}: application/json is needed")
    data = await _read(request, max_size)
    if len(data) < LARGE:
        return _parse(data, kind)
    return await asyncio.to_thread(_parse, data, kind)


def _parse(data: bytes, kind: type[Body]) -> Body:
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start}") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deep") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is a {type(value).__name__}, not a JSON object")
    _refuse_odd(value)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _as_api_error(_first_problem(error.errors(include_url=False))) from None


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


def _refuse_odd(body: dict[str, Any]) -> None:
    """Raises an `ApiError` that names what Python's JSON lets through and nothing here expects."""
    level: list[tuple[str, Any]] = [("", body)]
    for _ in range(MAX_DEPTH + 1):
        inner: list[tuple[str, Any]] = []
        for name, value in level:
            if isinstance(value, (dict, list)):
                inner += _parts(name, value)
            elif isinstance(value, float) and not isfinite(value):
                raise invalid(name, f"{value} is not a number that JSON has")
            elif isinstance(value, str) and not _is_text(value):
                raise invalid(name, "half of a surrogate pair is not text")
        if not inner:
            return
        level = inner
    name = level[0][0]
    raise invalid(re.split(r"[.\[]", name)[0], f"it is nested more than {MAX_DEPTH} levels deep")


def _parts(name: str, value: dict[str, Any] | list[Any]) -> list[tuple[str, Any]]:
    """All but integers, of which there may be many and none is odd."""
    if isinstance(value, list):
        return [(f"{name}[{i}]", v) for i, v in enumerate(value) if type(v) is not int]
    if not all(map(_is_text, value)):
        raise invalid(name, "half of a surrogate pair is not text")
    return [(f"{name}.{key}".lstrip("."), v) for key, v in value.items() if type(v) is not int]


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first_problem(problems: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of the first field that has one; where a value may have several types, with the one that the
    value comes closest to."""
    field = problems[0]["loc"][:1]
    return max((each for each in problems if each["loc"][:1] == field), key=lambda e: len(e["loc"]))


def _as_api_error(problem: Mapping[str, Any]) -> ApiError:
    location = problem["loc"]
    is_unknown = problem["type"] == "extra_forbidden"
    last = [location[-1]] if is_unknown else []
    fields = [part for part in location[: -1 if is_unknown else None] if not _names_a_type(part)]
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in [*fields, *last]).lstrip(
        "."
    )
    if is_unknown:
        return ApiError(400, f"{name}: unknown field", name, "unknown_parameter")
    given = "" if problem["type"] == "missing" else f" = {problem['input']!r:.80}"
    return ApiError(400, f"{name}{given}: {problem['msg']}", name or None)


def _names_a_type(part: int | str) -> bool:
    """Where several types are allowed, the location says which of them was tried."""
    return isinstance(part, str) and (
        part in ("str", "int", "float", "bool") or "[" in part or part[:1].isupper()
    )
