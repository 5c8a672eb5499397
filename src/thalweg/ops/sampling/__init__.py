"""From logits to a token: a draw that depends on its own row and key, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.ops.registry import Kernel, Op
from thalweg.ops.sampling import cpu, reference
from thalweg.ops.sampling.noise import draw_key
from thalweg.ops.sampling.reference import top_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

__all__ = [
    "LARGEST_OP",
    "LOGPROBS_OP",
    "OP",
    "Draw",
    "Largest",
    "LogProbs",
    "Sample",
    "SamplingProblem",
    "draw_key",
    "top_tokens",
]


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row's token is chosen."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    key: int
    """Names the noise; see `draw_key`. Unused when temperature is 0."""


@dataclass(frozen=True, slots=True)
class SamplingProblem:
    vocab_size: int
    dtype: torch.dtype

    def facts(self) -> str:
        return f"{self.vocab_size} tokens, {self.dtype}"


class Sample(Protocol):
    def __call__(self, logits: Tensor, draws: Sequence[Draw]) -> list[int]:
        """logits: [n, vocab_size], a draw a row -> n token ids"""


class Largest(Protocol):
    def __call__(self, logits: Tensor) -> list[float]:
        """The largest of each row, NaN if there is one. logits: [n, vocab_size] -> n numbers"""


class LogProbs(Protocol):
    def __call__(self, logits: Tensor) -> Tensor:
        """log softmax of each row. logits: [n, vocab_size] -> [n, vocab_size]"""


OP: Op[SamplingProblem, Sample] = Op(
    "sample", (Kernel("cpu", cpu.bind, cpu.reject), Kernel("reference", reference.bind))
)
LARGEST_OP: Op[SamplingProblem, Largest] = Op(
    "largest",
    (
        Kernel("cpu", cpu.bind_largest, cpu.reject),
        Kernel("reference", reference.bind_largest),
    ),
)
LOGPROBS_OP: Op[SamplingProblem, LogProbs] = Op(
    "logprobs",
    (
        Kernel("cpu", cpu.bind_logprobs, cpu.reject),
        Kernel("reference", reference.bind_logprobs),
    ),
)
