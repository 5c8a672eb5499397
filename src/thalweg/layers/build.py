"""What every part of a model is built with, beside its own facts and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from thalweg.memory.spec import DType

if TYPE_CHECKING:
    from thalweg.config import NormConfig
    from thalweg.ops.registry import KernelSelector


@dataclass(frozen=True, slots=True)
class BuildContext:
    """One model's choices. Everything a layer makes at construction follows from these."""

    kernels: KernelSelector
    dtype: torch.dtype
    device: str
    hidden_size: int
    norm: NormConfig
    block_size: int
    max_model_len: int

    @property
    def cache_dtype(self) -> DType:
        """Of KV rows."""
        return DType.named(str(self.dtype).removeprefix("torch."))

    @property
    def state_dtype(self) -> DType:
        """Of recurrent state: never less than float32."""
        return DType.FLOAT64 if self.dtype == torch.float64 else DType.FLOAT32
