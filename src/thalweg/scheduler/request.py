"""What a user asked for, and each answer in the making."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thalweg.memory.manager import Sequence

if TYPE_CHECKING:
    from thalweg.config import SamplingParams


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One prompt and how to answer it. Everything that decides its tokens is in here."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    """The params' own, or one drawn at admission."""
    max_tokens: int
    """At least 1; prompt and answer together fit the engine's context."""
    stop_ids: frozenset[int]
    """Ids that end an answer: the model's end-of-text ids unless ignored, and the params' own."""
    snapshot_hints: tuple[int, ...] = ()
    """Lengths of prefixes that later prompts are likely to share, e.g. a chat without the
    generation prompt."""


@dataclass(slots=True, eq=False)
class Sample:
    """One of a request's n answers, and its place in the caches."""

    request: Request
    index: int
    tokens: list[int]
    """The prompt, then the answer so far."""
    seq: Sequence = field(default_factory=Sequence)
    num_prompt_scored: int = 0
    """Prompt tokens whose logprobs were reported, when they are wanted."""

    @property
    def num_wanted(self) -> int:
        """Tokens that are known but not yet computed; the last one's logits give the next."""
        return len(self.tokens) - self.seq.num_computed

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)
