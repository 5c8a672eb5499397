"""From hidden states to tokens: edits of the logits, then one draw a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.errors import CheckpointError
from thalweg.ops import sampling
from thalweg.ops.sampling import Draw, draw_key
from thalweg.runner.penalties import edit_logits
from thalweg.scheduler.plan import SamplingRow, StepPlan, StepResult, Token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from thalweg.ops.registry import KernelSelector
    from thalweg.scheduler.request import Request, Sample

ROWS_AT_ONCE = 32
"""Rows of logits in memory at a time: a prompt whose logprobs are wanted has thousands."""


@dataclass(frozen=True, slots=True, eq=False)
class LogitsSource:
    """The hidden states of a step, and how they become logits."""

    hidden: Tensor  # [L, D]
    project: Callable[[Tensor], Tensor]  # [n, D] -> [n, vocab_size]

    def rows(self, start: int, stop: int) -> Tensor:
        """[stop - start, vocab_size]"""
        return self.project(self.hidden[start:stop])


class Sampler:
    def __init__(self, kernels: KernelSelector, vocab_size: int, dtype: torch.dtype) -> None:
        problem = sampling.SamplingProblem(vocab_size, dtype)
        self.sample = kernels.bind(sampling.OP, problem)
        """The draw alone, from logits that are edited already."""
        self._largest = kernels.bind(sampling.LARGEST_OP, problem)
        self._logprobs = kernels.bind(sampling.LOGPROBS_OP, problem)

    @torch.inference_mode()
    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        """Draw the plan's `sampling` rows and score its `scoring` rows, a few rows at a time.

        Raises `CheckpointError` if a model's weights give no numbers to choose among.
        """
        sampled: dict[int, Token] = {}
        scored: dict[int, Token] = {}
        for start in range(0, len(plan.logits_rows), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(plan.logits_rows))
            logits = source.rows(start, stop)
            self._refuse_no_numbers(logits)
            chunk = range(start, stop)
            for i, score in enumerate(plan.scoring):
                if score.logits_row in chunk:
                    row = logits[score.logits_row - start]
                    num_top = score.sample.request.params.prompt_logprobs
                    scored[i] = self._token(row, score.token_id, num_top=num_top)
            draws = [(i, r) for i, r in enumerate(plan.sampling) if r.logits_row in chunk]
            tokens = self._draw(logits, [r for _, r in draws], first_row=start)
            for (i, _), token in zip(draws, tokens, strict=True):
                sampled[i] = token
        return StepResult(
            tuple(sampled[i] for i in range(len(plan.sampling))),
            tuple(scored[i] for i in range(len(plan.scoring))),
        )

    def _draw(self, logits: Tensor, rows: Sequence[SamplingRow], *, first_row: int) -> list[Token]:
        """logits: [n, vocab_size], from logits row `first_row` of the plan on"""
        if not rows:
            return []
        places = [row.logits_row - first_row for row in rows]
        plain = [logits[place] for place in places]
        edited = [edit_logits(x, row) for x, row in zip(plain, rows, strict=True)]
        # As a rule every row is drawn from once, as it is: there is nothing to copy.
        as_they_are = places == [*range(len(logits))] and all(map(is_, plain, edited))
        chosen = self.sample(
            logits if as_they_are else torch.stack(edited), [draw(row) for row in rows]
        )
        return [
            self._token(x, token_id, num_top=row.request.params.logprobs)
            for x, row, token_id in zip(plain, rows, chosen, strict=True)
        ]

    def _refuse_no_numbers(self, logits: Tensor) -> None:
        """The kernels sort logits, which a NaN would send astray. logits: [n, vocab_size]"""
        for largest in self._largest(logits):
            if not math.isfinite(largest):
                raise CheckpointError(
                    f"the largest logit is {largest}: the model's weights are damaged, or too "
                    f"large for {str(logits.dtype).removeprefix('torch.')}"
                )

    def _token(self, logits: Tensor, token_id: int, *, num_top: int | None) -> Token:
        if num_top is None:
            return Token(token_id)
        logprobs = self._logprobs(logits[None])[0]
        return Token(
            token_id, float(logprobs[token_id]), tuple(sampling.top_tokens(logprobs, num_top))
        )


def draw(row: SamplingRow) -> Draw:
    """How a row's token is drawn."""
    token_index = len(row.history) - len(row.request.prompt)
    return _draw(row.request, row.sample_index, token_index)


def next_draw(sample: Sample, num_drafts: int) -> Draw:
    """How the token after an answer so far and so many right drafts is drawn."""
    return _draw(sample.request, sample.index, sample.num_generated + num_drafts)


def _draw(request: Request, sample_index: int, token_index: int) -> Draw:
    """The noise of a token is named by its place in its own answer and by nothing else."""
    params = request.params
    return Draw(
        params.temperature,
        params.top_k,
        params.top_p,
        params.min_p,
        draw_key(request.seed, sample_index, token_index),
    )
