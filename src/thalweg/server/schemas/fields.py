"""Fields that several requests have, and what becomes of each.

A field of OpenAI's works, or is accepted where it asks for what is done anyway, or is a label for
the log, or is refused by name. Ranges are `SamplingParams`' own to check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from thalweg.config import RequestOptions, SamplingParams
from thalweg.server.api_errors import invalid

if TYPE_CHECKING:
    from thalweg.config.server import ServerConfig


class Strict(BaseModel):
    """No unknown fields, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


def only(*allowed: object, why: str) -> AfterValidator:
    """Accepts the values that ask for what is done anyway; null always does."""

    def check(value: Any) -> Any:
        if value is not None and value not in allowed:
            use = " or ".join(map(repr, allowed)) or "leave it out"
            raise PydanticCustomError("refused", "{why}: {use}", {"why": why, "use": use})
        return value

    return AfterValidator(check)


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_progress: bool | None = None
    """How far a long prompt is, as chunks without choices."""
    include_obfuscation: Annotated[bool | None, only(False, why="there is none")] = None


class SamplingFields(Strict):
    """The names are OpenAI's where it has one, else those of `SamplingParams`."""

    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    include_stop: bool | None = None
    ignore_eos: bool | None = None

    def sampling(self, **more: Any) -> SamplingParams:
        """`more`: what the kinds of requests spell differently. Raises `RequestError`."""
        given = {name: getattr(self, name) for name in SamplingFields.model_fields} | more
        if self.logit_bias is not None:
            given["logit_bias"] = {_token_id(key): value for key, value in self.logit_bias.items()}
        return SamplingParams(**{name: v for name, v in given.items() if v is not None})


class Labels(Strict):
    """Go to the log line and nowhere else."""

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def labels(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in Labels.model_fields}
        return {name: value for name, value in given.items() if value is not None}


class GenerationFields(SamplingFields, Labels):
    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    timeout: float | None = None
    cache_salt: str | None = None

    def options(self, config: ServerConfig) -> RequestOptions:
        """Raises `ApiError` and `RequestError`."""
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "the answer is not streamed")
        if self.priority is not None and self.priority < config.min_priority:
            allowed = f"{self.priority} is more urgent than the {config.min_priority} allowed here"
            raise invalid("priority", allowed)
        times = [each for each in (self.timeout, config.request_timeout) if each is not None]
        given = {"priority": self.priority, "cache_salt": self.cache_salt}
        return RequestOptions(
            timeout=min(times, default=None),
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]  # by name
        )

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def wants_progress(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_progress)


def _token_id(key: str) -> int | str:
    """Left as it is if it is none: `SamplingParams` says what is allowed."""
    return int(key) if key.isascii() and key.isdecimal() and len(key) < 20 else key


TokenIds = Annotated[list[int], Field(max_length=10_000_000)]
Role = Literal["system", "developer", "user", "assistant", "tool"]
