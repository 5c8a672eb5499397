"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse

from thalweg.errors import RequestError
from thalweg.server.api_errors import ApiError, invalid
from thalweg.server.json_body import read_json
from thalweg.server.schemas.text_requests import DetokenizeRequest, TokenizeRequest
from thalweg.text import encode_chat

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from thalweg.server.service import Service


async def tokenize(service: Service, request: Request) -> Response:
    body = await read_json(request, TokenizeRequest, service.config.max_body_size)
    ids = await asyncio.to_thread(_ids, service, body)
    most = service.loaded.limits.max_model_len
    return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": most})


async def detokenize(service: Service, request: Request) -> Response:
    body = await read_json(request, DetokenizeRequest, service.config.max_body_size)
    decode = service.loaded.tokenizer.decode
    text = await asyncio.to_thread(decode, body.tokens, skip_special=body.skip_special)
    return JSONResponse({"prompt": text})


def _ids(service: Service, body: TokenizeRequest) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "prompt or messages: one of them is needed", "prompt")
    if body.prompt is not None:
        for name in ("tools", "chat_template_kwargs"):
            if getattr(body, name):
                raise invalid(name, "it goes with messages, not with a prompt")
        return service.loaded.tokenizer.encode(body.prompt, parse_special=body.parse_special)
    if service.loaded.template is None:
        raise RequestError("this model has no chat template")
    return encode_chat(
        service.loaded.tokenizer,
        service.loaded.template,
        [message.model_dump(exclude_none=True) for message in body.messages or ()],
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        **(body.chat_template_kwargs or {}),
    ).token_ids
