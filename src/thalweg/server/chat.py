"""`/v1/chat/completions`."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.errors import ThalwegError
from thalweg.server.api_errors import as_api_error
from thalweg.server.chat_plan import plan_chat
from thalweg.server.generation import Generation
from thalweg.server.json_body import read_json
from thalweg.server.logprobs import LogprobsView
from thalweg.server.respond import respond
from thalweg.server.schemas.chat_request import ChatRequest
from thalweg.server.sse import DONE, event
from thalweg.server.usage import timings, usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from thalweg.engine.outputs import RequestOutput
    from thalweg.server.chat_choice import ChatChoice, ChoicePiece
    from thalweg.server.chat_plan import ChatPlan
    from thalweg.server.service import Service


async def create_chat_completion(service: Service, request: Request) -> Response:
    body = await read_json(request, ChatRequest, service.config.max_body_size)
    call_id = f"chatcmpl-{uuid.uuid4().hex}"
    plan = await asyncio.to_thread(plan_chat, service, body, call_id)
    choices = [plan.choice() for _ in range(plan.admitted.request.params.n)]
    generation = await Generation.start(service, call_id, [plan.admitted], labels=body.labels())
    return await respond(request, _Call(service, body, plan, generation, choices))


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    service: Service
    body: ChatRequest
    plan: ChatPlan
    generation: Generation
    choices: list[ChatChoice]

    async def whole(self) -> dict[str, Any]:
        async for _, delta in self.generation.pieces():
            self.choices[delta.index].push(delta)
            self._stop_early()
        outputs = self.generation.outputs
        view = LogprobsView(self.service.loaded.tokenizer)
        return {
            **self.head(is_chunk=False),
            "choices": [
                {
                    "index": index,
                    "message": choice.message(),
                    "logprobs": view.chat(choice.tokens) if self.body.logprobs else None,
                    "finish_reason": choice.finish_reason,
                }
                for index, choice in enumerate(self.choices)
            ],
            **self._tail(outputs[0]),
        }

    async def events(self) -> AsyncGenerator[bytes]:
        """The role of every answer first, the usage last if it was asked for."""
        head = self.head(is_chunk=True)
        if self.body.wants_usage:
            head["usage"] = None
        try:
            for index in range(len(self.choices)):
                role = {"role": "assistant", "content": ""}
                yield event({**head, "choices": [_chunk(index, role)]})
            async for _, delta in self.generation.pieces():
                piece = self.choices[delta.index].push(delta)
                if piece.delta or piece.finish_reason or (self.body.logprobs and piece.tokens):
                    yield event({**head, "choices": [self._chunk(delta.index, piece)]})
                self._stop_early()
            if self.body.wants_usage:
                tail = self._tail(self.generation.outputs[0])
                yield event({**head, "choices": [], **tail})
        except ThalwegError as error:
            yield event(as_api_error(error).body())
        yield DONE

    def _stop_early(self) -> None:
        if all(choice.is_over for choice in self.choices):
            self.generation.cancel()

    def _tail(self, output: RequestOutput) -> dict[str, Any]:
        counts = usage([output])
        if self.plan.thinks:
            thought = sum(
                self.plan.num_reasoning_tokens(answer.token_ids) for answer in output.outputs
            )
            counts["completion_tokens_details"] = {"reasoning_tokens": thought}
        return {"usage": counts, "timings": timings(output)}

    def head(self, *, is_chunk: bool) -> dict[str, Any]:
        return {
            "id": self.generation.call_id,
            "object": "chat.completion.chunk" if is_chunk else "chat.completion",
            "created": self.generation.created,
            "model": self.body.model,
        }

    def _chunk(self, index: int, piece: ChoicePiece) -> dict[str, Any]:
        logprobs = None
        if self.body.logprobs and piece.tokens:
            logprobs = LogprobsView(self.service.loaded.tokenizer).chat(piece.tokens)
        return _chunk(index, piece.delta, logprobs=logprobs, finish_reason=piece.finish_reason)


def _chunk(
    index: int,
    delta: dict[str, Any],
    *,
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
