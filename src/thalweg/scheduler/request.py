"""What a user asked for, and each answer in the making."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thalweg.config.request import RequestOptions
from thalweg.memory.block_keys import BlockKeys
from thalweg.memory.manager import Sequence

if TYPE_CHECKING:
    from thalweg.config import SamplingParams
    from thalweg.memory.offload.host_tier import Parked
    from thalweg.memory.prefix import Worth
    from thalweg.scheduler.constraint import TokenConstraint


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
    options: RequestOptions = field(default_factory=RequestOptions)
    kept_special: frozenset[int] = frozenset()
    """Special tokens whose text belongs to the answer's text."""
    constraints: tuple[TokenConstraint, ...] = ()
    """One for each answer, or none."""


@dataclass(slots=True, eq=False)
class Sample:
    """One of a request's n answers, and its place in the caches."""

    request: Request
    index: int
    tokens: list[int]
    """The prompt, then the answer so far."""
    arrival: int = 0
    """Counts up over the requests of a scheduler."""
    seq: Sequence = field(default_factory=Sequence)
    keys: BlockKeys = field(init=False)
    """Names of its full blocks for the prefix cache."""
    drafts: tuple[int, ...] = ()
    """Guesses of what follows `tokens`, for the step that computes the last of them."""
    num_prompt_scored: int = 0
    """Prompt tokens whose logprobs were reported, when they are wanted."""
    num_cached: int = 0
    """Tokens that came from the prefix cache when it last started."""
    cache_miss: str | None = None
    """Why it were not more."""
    snapshot_at: dict[int, Worth] = field(default_factory=dict)
    """Token counts, on block boundaries, after which a snapshot is wanted, and how much."""
    rolls_from: int = 0
    """From this token count on, the last block boundary has a snapshot that moves along."""
    rolling: int = 0
    """The token count where that snapshot is now; 0: nowhere yet."""
    parked: Parked | None = None
    """Its memory, while that is in the host tier; `seq` is empty then."""
    num_preemptions: int = 0
    has_ended: bool = False

    def __post_init__(self) -> None:
        self.keys = BlockKeys(self.request.options.cache_salt.encode())

    @property
    def rank(self) -> tuple[int, int, int]:
        """Who comes first: the more urgent, then the earlier."""
        return self.request.options.priority, self.arrival, self.index

    @property
    def scores_prompt(self) -> bool:
        """The prompt's own logprobs are wanted and not all there, so all of it is computed."""
        wanted = self.index == 0 and self.request.params.prompt_logprobs is not None
        return wanted and self.num_prompt_scored < len(self.request.prompt) - 1

    @property
    def num_wanted(self) -> int:
        """Tokens that are known but not yet computed; the last one's logits give the next."""
        return len(self.tokens) - self.seq.num_computed

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def num_left(self) -> int:
        """Tokens that the answer may still gain."""
        return self.request.max_tokens - self.num_generated
