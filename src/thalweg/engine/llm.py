"""The engine as a library: prompts in, answers out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from thalweg.config import RequestOptions, SamplingParams, engine_config
from thalweg.engine.admission import Admitted, Prompt, admit_prompt
from thalweg.engine.loading import LoadedEngine, load_engine
from thalweg.engine.outputs import Delta
from thalweg.errors import RequestError
from thalweg.text import ChatPrompt, Tokenizer, encode_chat

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.engine.outputs import RequestOutput

Messages = Sequence[Mapping[str, Any]]
Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A loaded model. Not thread-safe: one thread at a time.

        with LLM("path/to/model") as llm:
            print(llm.generate("The river", SamplingParams(max_tokens=20))[0].text)

    `model` is a Hugging Face directory or a GGUF file; `progress` is called with bytes read and
    bytes in all while it loads; options are those of `EngineConfig`. Raises `CheckpointError` or
    `ConfigError`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> None:
        self.config = engine_config(**options)
        self._loaded: LoadedEngine | None = load_engine(model, self.config, progress)
        self._ids = count()
        self._streams: dict[str, deque[Delta]] = {}
        self._finished: dict[str, RequestOutput] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the weights and caches. The object cannot be used afterwards."""
        self._loaded = None

    @property
    def loaded(self) -> LoadedEngine:
        """The engine and what it was made of: model facts, load report, plans."""
        if self._loaded is None:
            raise RuntimeError("this LLM is closed")
        return self._loaded

    @property
    def tokenizer(self) -> Tokenizer:
        return self.loaded.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        request_options: RequestOptions | None = None,
    ) -> list[RequestOutput]:
        """Answer one or many prompts together; the outputs are in the prompts' order.

        A list of ints is one prompt. `sampling_params` holds for all prompts, or is a list with one
        for each; `request_options` hold for all. Any invalid prompt raises `RequestError` before
        anything runs. The time of a timeout runs from when the engine takes a request: at once, or
        when fewer than `max_num_waiting` wait.
        """
        requests = self._admit(_as_prompts(prompts), sampling_params, request_options)
        outputs = {output.request_id: output for output in self._run(requests)}
        return [outputs[admitted.request.id] for admitted in requests]

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        request_options: RequestOptions | None = None,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """The same for one conversation or many, through the model's chat template.

        `template_options` reach the template, for example `enable_thinking=False`.
        """
        given: Any = messages
        many = given if _is_list(given) and given and _is_list(given[0]) else [given]
        prompts = [self.render(each, tools=tools, **template_options) for each in many]
        return self.generate(prompts, sampling_params, request_options=request_options)

    def render(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **template_options: Any,
    ) -> ChatPrompt:
        """A conversation as a prompt. Raises `RequestError` if the template refuses it."""
        if self.loaded.template is None:
            raise RequestError("this model has no chat template: give a prompt instead")
        return encode_chat(
            self.tokenizer, self.loaded.template, messages, tools=tools, **template_options
        )

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_options: RequestOptions | None = None,
    ) -> Iterator[Delta]:
        """Answer one prompt piece by piece. Closing the iterator ends the request.

        The prompt is checked by this call and queued by the first `next`, which raises `QueueFull`
        while too many other streams are waiting.
        """
        return self._stream(self._admit([prompt], sampling_params, request_options)[0])

    def as_completed(
        self,
        prompts: Sequence[Prompt],
        sampling_params: Params = None,
        *,
        request_options: RequestOptions | None = None,
    ) -> Iterator[tuple[int, RequestOutput]]:
        """Answer many prompts together; yields (place of the prompt, output) as each is done."""
        requests = self._admit(list(prompts), sampling_params, request_options)
        places = {admitted.request.id: place for place, admitted in enumerate(requests)}
        return ((places[output.request_id], output) for output in self._run(requests))

    def _admit(
        self,
        prompts: Sequence[Prompt],
        sampling_params: Params,
        request_options: RequestOptions | None,
    ) -> list[Admitted]:
        params = _as_params(sampling_params, len(prompts))
        admitted = []
        for prompt, each in zip(prompts, params, strict=True):
            if not _is_prompt(prompt):
                allowed = "text, token ids, or what render returned"
                raise RequestError(f"{prompt!r:.80} is not allowed as a prompt: {allowed}")
            admitted.append(
                admit_prompt(
                    str(next(self._ids)),
                    prompt,
                    each,
                    limits=self.loaded.limits,
                    tokenizer=self.tokenizer,
                    options=request_options,
                )
            )
        return admitted

    def _run(self, requests: list[Admitted]) -> Iterator[RequestOutput]:
        """Step until these are done. What is left of them when the caller stops is cancelled."""
        coming = deque(requests)
        left: set[str] = set()
        try:
            while coming or left:
                while coming and self.loaded.engine.has_room:
                    admitted = coming.popleft()
                    self.loaded.engine.add_request(admitted.request, admitted.text)
                    left.add(admitted.request.id)
                self._step()
                for request_id in [each for each in self._finished if each in left]:
                    left.remove(request_id)
                    yield self._finished.pop(request_id)
        finally:
            self._abort(left)

    def _stream(self, admitted: Admitted) -> Iterator[Delta]:
        request_id = admitted.request.id
        self.loaded.engine.add_request(admitted.request, admitted.text)
        inbox = self._streams[request_id] = deque[Delta]()
        try:
            while inbox or request_id not in self._finished:
                if inbox:
                    yield inbox.popleft()
                else:
                    self._step()
        finally:
            del self._streams[request_id]
            self._abort([request_id])

    def _step(self) -> None:
        """One step of the engine, whoever waits for its results."""
        step = self.loaded.engine.step()
        for delta in step.deltas:
            if delta.request_id in self._streams:
                self._streams[delta.request_id].append(delta)
        self._finished |= {output.request_id: output for output in step.finished}

    def _abort(self, request_ids: Iterable[str]) -> None:
        """End those that have not ended, and forget the results of those that have."""
        for request_id in request_ids:
            if self._finished.pop(request_id, None) is None and self._loaded is not None:
                self._loaded.engine.cancel(request_id)


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _is_prompt(value: object) -> bool:
    match value:
        case str() | ChatPrompt() | [*_]:
            return True
        case _:
            return False


def _as_prompts(prompts: Any) -> Sequence[Prompt]:
    match prompts:
        case [int(), *_]:
            return [prompts]
        case [*many]:
            return many
        case _:
            return [prompts]


def _as_params(params: Params, num_prompts: int) -> Sequence[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    many = params if isinstance(params, Sequence) else [params]
    if wrong := [each for each in many if not isinstance(each, SamplingParams)]:
        allowed = "SamplingParams, or a list with one for each prompt"
        raise RequestError(f"sampling_params = {wrong[0]!r:.80} is not allowed: {allowed}")
    if len(many) != num_prompts:
        raise RequestError(f"{len(many)} sampling_params for {num_prompts} prompts")
    return many
