from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from thalweg.ops.sampling import Draw, Largest, LogProbs, Sample, SamplingProblem


def reject(problem: SamplingProblem) -> str | None:
    return extension.reason(problem.dtype)


def bind(problem: SamplingProblem) -> Sample:
    kernel = extension.kernels().Sampler(problem.vocab_size)

    def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
        assert logits.shape == (len(draws), problem.vocab_size)
        logits = extension.unit_stride(logits)
        tokens: list[int] = kernel.run(
            logits.data_ptr(),
            logits.stride(0),
            [draw.temperature for draw in draws],
            [min(draw.top_k, problem.vocab_size) for draw in draws],  # it takes int64
            [draw.top_p for draw in draws],
            [draw.min_p for draw in draws],
            [draw.key for draw in draws],
        )
        return tokens

    return sample


def bind_largest(problem: SamplingProblem) -> Largest:
    kernel = extension.kernels().Sampler(problem.vocab_size)

    def largest(logits: Tensor) -> list[float]:
        assert logits.shape[1] == problem.vocab_size
        logits = extension.unit_stride(logits)
        values: list[float] = kernel.run_largest(logits.data_ptr(), logits.stride(0), len(logits))
        return values

    return largest


def bind_logprobs(problem: SamplingProblem) -> LogProbs:
    kernel = extension.kernels().Sampler(problem.vocab_size)

    def logprobs(logits: Tensor) -> Tensor:
        assert logits.shape[1] == problem.vocab_size
        logits = extension.unit_stride(logits)
        out = torch.empty(logits.shape)
        kernel.run_logprobs(logits.data_ptr(), logits.stride(0), len(logits), out.data_ptr())
        return out

    return logprobs
