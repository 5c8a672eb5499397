"""What makes layers differ: the part that looks across tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.memory.spec import CacheSpec
    from thalweg.memory.storage import LayerCache
    from thalweg.ops.transformer_layers import AttentionParts, GatedDeltaNetParts


class TokenMixer(Protocol):
    """Reads and writes only the memory its `cache_spec` declares, through the batch's indexes."""

    cache_spec: CacheSpec

    @property
    def parts(self) -> GatedDeltaNetParts | AttentionParts:
        """Its bound ops, for a kernel that does whole layers."""

    def __call__(self, hidden: Tensor, batch: ForwardBatch, cache: LayerCache) -> Tensor:
        """hidden: [T, hidden_size], normed -> [T, hidden_size], to be added to the residual"""
