"""What is asked in every pass of a selfcheck: few requests that have little in common."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from thalweg.config import SamplingParams
from thalweg.engine.admission import admit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.admission import AdmissionLimits
    from thalweg.scheduler.request import Request

LONGEST = 70
"""Tokens of the longest of the first prompts: some blocks of any usual size."""
ADDED = 5
"""Tokens that the last request adds to an answer."""


def context_needed(num_tokens: int) -> int:
    """Of the longest prompt and its answer, with answers of `num_tokens`."""
    return LONGEST + num_tokens + ADDED + num_tokens


class Workload:
    """Random tokens, the same for the same seed; every answer has `num_tokens` tokens."""

    def __init__(self, limits: AdmissionLimits, *, num_tokens: int, seed: int) -> None:
        self._limits = limits
        self._num_tokens = num_tokens
        self._random = Random(seed)

    def first(self) -> list[Request]:
        """Greedy and sampled, one answer and two, penalties, a scored prompt, an answer that
        repeats itself; two prompts begin alike."""
        long, bias = self._tokens(LONGEST), {self._random.randrange(self._limits.vocab_size): 100.0}
        greedy = SamplingParams(temperature=0, logprobs=2)
        sampled = SamplingParams(seed=1, logprobs=1)
        return [
            self._ask("greedy", long, greedy),
            self._ask("sampled", [*long[:50], *self._tokens(7)], replace(sampled, top_p=0.95)),
            self._ask("two answers", self._tokens(33), replace(sampled, n=2, min_p=0.01)),
            self._ask(
                "penalties",
                self._tokens(19),
                replace(greedy, repetition_penalty=1.2, prompt_logprobs=1),
            ),
            self._ask("repeating", self._tokens(16), replace(greedy, logit_bias=bias)),
        ]

    def follow_up(self, first: Request, answer: Sequence[int]) -> Request:
        """What a chat asks next: the prompt, its answer, and a few tokens more."""
        prompt = [*first.prompt, *answer, *self._tokens(ADDED)]
        return self._ask("follow-up", prompt, SamplingParams(temperature=0, logprobs=2))

    def _ask(self, name: str, prompt: Sequence[int], params: SamplingParams) -> Request:
        params = replace(params, max_tokens=self._num_tokens, ignore_eos=True)
        return admit(name, prompt, params, limits=self._limits)

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(self._limits.vocab_size) for _ in range(count)]
