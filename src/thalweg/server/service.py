"""What the handlers of all routes share."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thalweg.engine.admission import admit_prompt
from thalweg.errors import QueueFull, RequestError
from thalweg.server.api_errors import ApiError, invalid
from thalweg.server.tags import THINK_OPEN
from thalweg.server.tool_parsers import ToolFormat, tool_format_of
from thalweg.text.template_features import TemplateFeatures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.config import RequestOptions, SamplingParams
    from thalweg.config.server import ServerConfig
    from thalweg.engine.admission import Admitted, Prompt
    from thalweg.engine.async_engine import AsyncEngine
    from thalweg.engine.loading import LoadedEngine
    from thalweg.engine.outputs import RequestOutput
    from thalweg.engine.stream import RequestStream
    from thalweg.server.generation import Generation
    from thalweg.server.metrics import Metrics
    from thalweg.server.request_log import RequestLog
    from thalweg.text.grammar import GrammarCompiler
    from thalweg.text.thinking_budget import Constraint

RECENT = 50


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """How a prompt is to be answered."""

    field: str
    """The request's, that has the prompt."""
    params: SamplingParams
    options: RequestOptions
    kept_special: frozenset[int] = frozenset()
    constraints: tuple[Constraint, ...] = ()
    """One for each answer, or none."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelFacts:
    """What can be asked of this model."""

    names: tuple[str, ...]
    created: int
    features: TemplateFeatures | None
    """None: it has no chat template."""
    thinks: bool
    """Its template knows `<think>` parts."""
    tool_format: ToolFormat | None

    @classmethod
    def of(cls, loaded: LoadedEngine, config: ServerConfig, *, name: str, now: int) -> ModelFacts:
        """`name`: what it is called unless the configuration says so."""
        template = loaded.template
        source = "" if template is None else template.source
        chosen = {"auto": tool_format_of(source), "none": None}
        form = config.tool_format
        return cls(
            names=config.served_model_names or (name,),
            created=now,
            features=None if template is None else TemplateFeatures.of(template),
            thinks=THINK_OPEN in source,
            tool_format=chosen[form] if form in chosen else ToolFormat(form),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    config: ServerConfig
    loaded: LoadedEngine
    engine: AsyncEngine
    model: ModelFacts
    grammars: GrammarCompiler
    metrics: Metrics
    log: RequestLog
    calls: dict[str, Generation] = field(default_factory=dict)
    """Those underway, by the id that their answer has."""
    recent: deque[RequestOutput] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The last requests that have ended, for the page."""

    def ended(self, stream: RequestStream, *, labels: Mapping[str, Any]) -> None:
        """Every request that the engine was given comes here once, however it has ended."""
        if stream.output is not None:
            self.recent.append(stream.output)
            self.log.ended(stream.output, labels)
        elif isinstance(stream.error, QueueFull):
            pass  # it is answered, logged and counted as refused
        elif stream.error is not None:
            self.metrics.failed()
            self.log.failed(stream.request_id, stream.error, labels)

    def admit(self, request_id: str, prompt: Prompt, settings: Settings) -> Admitted:
        """Raises `ApiError` if the prompt is not allowed, and `RequestError`."""
        try:
            return admit_prompt(
                request_id,
                prompt,
                settings.params,
                limits=self.loaded.limits,
                tokenizer=self.loaded.tokenizer,
                options=settings.options,
                kept_special=settings.kept_special,
                constraints=settings.constraints,
            )
        except RequestError as error:
            if "the prompt" in str(error):
                raise invalid(settings.field, str(error)) from error
            raise

    def check_model(self, name: str) -> None:
        if name not in self.model.names:
            allowed = ", ".join(self.model.names)
            message = f"model = {name!r:.80} does not exist here: {allowed}"
            raise ApiError(404, message, "model", "model_not_found")
