"""`/v1/completions`."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.engine.outputs import Token
from thalweg.errors import ThalwegError
from thalweg.server.api_errors import as_api_error, invalid
from thalweg.server.generation import Generation
from thalweg.server.json_body import read_json
from thalweg.server.logprobs import LogprobsView, without_end
from thalweg.server.respond import respond
from thalweg.server.schemas.completion_request import CompletionRequest
from thalweg.server.service import Settings
from thalweg.server.sse import DONE, event
from thalweg.server.usage import timings, usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from thalweg.engine.admission import Admitted
    from thalweg.engine.outputs import CompletionOutput, Delta, RequestOutput
    from thalweg.server.service import Service


async def create_completion(service: Service, request: Request) -> Response:
    body = await read_json(request, CompletionRequest, service.config.max_body_size)
    call_id = f"cmpl-{uuid.uuid4().hex}"
    admitted = await asyncio.to_thread(_admit, service, body, call_id)
    generation = await Generation.start(service, call_id, admitted, labels=body.labels())
    return await respond(request, _Call(service, body, generation, admitted))


def _admit(service: Service, body: CompletionRequest, call_id: str) -> list[Admitted]:
    """Raises `ApiError` and `RequestError`."""
    service.check_model(body.model)
    prompts = _prompts(body)
    num_tokens = body.max_tokens
    if num_tokens == 0:  # scoring: one token is drawn, and nobody sees it
        if not body.echo:
            raise invalid("max_tokens", "0 leaves nothing to answer with but the echo")
        num_tokens = 1
    if body.echo and body.logprobs is not None and body.stream:
        raise invalid("stream", "logprobs of an echo are not streamed")
    settings = Settings(
        field="prompt",
        params=body.sampling(
            max_tokens=num_tokens,
            logprobs=body.logprobs,
            prompt_logprobs=body.logprobs if body.echo else None,
        ),
        options=body.options(service.config),
    )
    if len(prompts) == 1:
        return [service.admit(call_id, prompts[0], settings)]
    return [service.admit(f"{call_id}-{i}", each, settings) for i, each in enumerate(prompts)]


def _prompts(body: CompletionRequest) -> Sequence[str | list[int]]:
    """One prompt is text or a list of ids; anything else in a list is many."""
    given: Any = body.prompt
    if not isinstance(given, list) or (given and isinstance(given[0], int)):
        return [given]
    if not given:
        raise invalid("prompt", "it is empty")
    return given


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    service: Service
    body: CompletionRequest
    generation: Generation
    admitted: Sequence[Admitted]

    async def whole(self) -> dict[str, Any]:
        async for _ in self.generation.pieces():
            pass
        outputs = self.generation.outputs
        n = len(outputs[0].outputs)
        choices = [
            self._choice(place * n + answer.index, output, answer)
            for place, output in enumerate(outputs)
            for answer in output.outputs
        ]
        return {**self.head(is_chunk=False), "choices": choices, **self._tail(outputs)}

    async def events(self) -> AsyncGenerator[bytes]:
        head = self.head(is_chunk=True)
        if self.body.wants_usage:
            head["usage"] = None
        n = self.admitted[0].request.params.n
        lengths: dict[int, int] = {}
        try:
            if self.body.echo:
                for index in range(n * len(self.admitted)):
                    text = self._prompt_text(index // n)
                    lengths[index] = len(text)
                    yield event({**head, "choices": [_chunk(index, text)]})
            async for place, delta in self.generation.pieces():
                index = place * n + delta.index
                chunk = self._chunk(index, delta, lengths.get(index, 0))
                lengths[index] = lengths.get(index, 0) + len(delta.text)
                if chunk["text"] or chunk["logprobs"] or chunk["finish_reason"]:
                    yield event({**head, "choices": [chunk]})
            if self.body.wants_usage:
                tail = self._tail(self.generation.outputs)
                yield event({**head, "choices": [], **tail})
        except ThalwegError as error:
            yield event(as_api_error(error).body())
        yield DONE

    @property
    def _scores_only(self) -> bool:
        return self.body.max_tokens == 0

    def _choice(
        self, index: int, output: RequestOutput, answer: CompletionOutput
    ) -> dict[str, Any]:
        by_token = isinstance(answer.stop, int)
        text = "" if self._scores_only else answer.text
        tokens = () if self._scores_only else without_end(answer.tokens, ended_by_token=by_token)
        scored: list[Token] = []
        if self.body.echo:
            text = self._prompt_text(index // len(output.outputs)) + text
            # Before the first token there is nothing that could expect it.
            scored = [Token(output.prompt_token_ids[0]), *output.prompt_tokens]
        logprobs = None
        if self.body.logprobs is not None:
            view = LogprobsView(self.service.loaded.tokenizer)
            logprobs = view.completion([*scored, *tokens], 0)
        return _chunk(index, text, logprobs=logprobs, finish_reason=answer.finish_reason)

    def _chunk(self, index: int, delta: Delta, offset: int) -> dict[str, Any]:
        if self._scores_only:
            return _chunk(index, "", finish_reason=delta.finish_reason)
        tokens: Sequence[Token] = delta.tokens
        if tokens and delta.finish_reason == "stop":
            stop_ids = self.admitted[0].request.stop_ids
            tokens = without_end(tokens, ended_by_token=tokens[-1].id in stop_ids)
        logprobs = None
        if self.body.logprobs is not None and tokens:
            logprobs = LogprobsView(self.service.loaded.tokenizer).completion(tokens, offset)
        return _chunk(index, delta.text, logprobs=logprobs, finish_reason=delta.finish_reason)

    def _prompt_text(self, place: int) -> str:
        text = self.admitted[place].text
        if text is not None:
            return text
        ids = self.admitted[place].request.prompt
        return self.service.loaded.tokenizer.decode(ids, skip_special=False)

    def head(self, *, is_chunk: bool) -> dict[str, Any]:
        """The same for both."""
        return {
            "id": self.generation.call_id,
            "object": "text_completion",
            "created": self.generation.created,
            "model": self.body.model,
        }

    def _tail(self, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        counts = usage(outputs)
        if self._scores_only:
            counts["completion_tokens"], counts["total_tokens"] = 0, counts["prompt_tokens"]
        times = {"timings": timings(outputs[0])} if len(outputs) == 1 else {}
        return {"usage": counts, **times}


def _chunk(
    index: int,
    text: str,
    *,
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
