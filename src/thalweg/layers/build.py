"""What every part of a model is built with, beside its own facts and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.layers.cache_spec import cache_spec
from thalweg.memory.spec import DType
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    import torch

    from thalweg.config import MixerConfig, NormConfig
    from thalweg.memory.spec import CacheSpec
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
    kv_dtype: DType | None = None
    """Of KV rows; None is the model's."""

    def cache_spec(self, mixer: MixerConfig) -> CacheSpec:
        """What a mixer of this model remembers."""
        return cache_spec(mixer, self.kind, kv_dtype=self.kv_dtype or self.kind)

    @property
    def kind(self) -> DType:
        """The `dtype`, as plans of memory call it."""
        return DType.named(str(self.dtype).removeprefix("torch."))

    @property
    def state_dtype(self) -> torch.dtype:
        """Of recurrent state and all that is computed on the way to it."""
        return ACCUMULATE[self.dtype]
