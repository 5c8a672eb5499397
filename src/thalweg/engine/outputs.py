"""What comes back from an engine: pieces as they are made, and the whole at the end."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.scheduler.plan import FinishReason, Token
from thalweg.speculative.counts import DraftCounts

__all__ = [
    "CompletionOutput",
    "Delta",
    "DraftCounts",
    "FinishReason",
    "Progress",
    "RequestOutput",
    "Timings",
    "Token",
]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of one answer. The deltas of an answer, joined, are the whole of it."""

    request_id: str
    index: int
    """Which of the request's n answers."""
    text: str
    """May be empty: half a character, or the beginning of a stop string, waits for its rest."""
    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None = None
    """Set on an answer's last piece."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a prompt whose answer has not begun."""

    num_computed: int
    """Tokens that the last finished pass has left behind, those from the cache included."""
    num_prompt: int


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One answer."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    """With the token that ended it, whose text is in `text` with `include_stop` only."""
    tokens: tuple[Token, ...]
    """The same with logprobs, where `SamplingParams.logprobs` asked for them."""
    finish_reason: FinishReason
    """`stop`: an end-of-text or stop id, or a stop string; `length`: max_tokens or the context is
    reached; `abort`: cancelled; `timeout`: `RequestOptions.timeout` is over."""
    stop: str | int | None = None
    """The stop string or the id that ended it."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one request."""

    queue: float
    """From admission to the first step that computed a part of it."""
    prompt: float
    """From there to the first token."""
    generation: float
    """From there to the last one."""
    inter_token: tuple[tuple[float, ...], ...]
    """Of each answer, between its tokens: one less than it has."""

    @property
    def first_token(self) -> float:
        """From admission to the first token."""
        return self.queue + self.prompt


@dataclass(frozen=True, slots=True)
class RequestOutput:
    request_id: str
    prompt: str | None
    """None when the prompt was given as token ids."""
    prompt_token_ids: tuple[int, ...]
    prompt_tokens: tuple[Token, ...]
    """The prompt's tokens from the second on with their logprobs, where
    `SamplingParams.prompt_logprobs` asked for them; the first has nothing before it."""
    outputs: tuple[CompletionOutput, ...]
    seed: int
    """The seed that gives the same answers again."""
    num_cached_tokens: int
    """Prompt tokens that were not computed again: the prefix cache knew them."""
    cache_miss: str | None
    """Why it were not more; None if all but the last block were known."""
    num_computed_tokens: int
    """Of prompt and answers, those computed again after a preemption included."""
    num_preemptions: int
    """How often its answers had to give up their memory."""
    drafts: DraftCounts
    """Guesses that were verified on the way, and how many were right."""
    timings: Timings

    @property
    def text(self) -> str:
        """The first answer's text."""
        return self.outputs[0].text

    @property
    def num_generated(self) -> int:
        return sum(len(output.token_ids) for output in self.outputs)
