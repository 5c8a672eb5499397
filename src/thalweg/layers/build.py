"""What every part of a model is built with, beside its own facts and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.memory.spec import DType
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    import torch

    from thalweg.config import NormConfig
    from thalweg.ops.registry import KernelSelector


@dataclass(frozen=True, slots=True)
class BuildContext:
    """One model's choices. Everything a layer makes at construction follows from these."""

    kernels: KernelSelector
    dtype: torch.dtype
    device: str
    norm: NormConfig
    block_size: int
    max_model_len: int

    @property
    def cache_dtype(self) -> DType:
        """Of KV rows."""
        return DType.named(str(self.dtype).removeprefix("torch."))

    @property
    def state_dtype(self) -> torch.dtype:
        """Of recurrent state and all that is computed on the way to it."""
        return ACCUMULATE[self.dtype]
