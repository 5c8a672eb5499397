"""A decoder with its multi-token-prediction head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from thalweg.layers.cache_spec import mtp_cache_spec
from thalweg.layers.mtp import MTPHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.batch import ForwardBatch
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights
    from thalweg.memory.manager import Sequence as CacheSequence
    from thalweg.memory.storage import LayerCache
    from thalweg.models.decoder import Decoder


class MTPModel(nn.Module):
    """Runs as the decoder does, and the head sees all that it computes."""

    def __init__(self, decoder: Decoder, weights: Weights, build: BuildContext) -> None:
        """`weights` of the whole model, whose head has one layer."""
        super().__init__()
        (layer,) = decoder.config.mtp_layers
        self.decoder = decoder
        self.head = MTPHead(layer, weights.scope("mtp"), build, embed_tokens=decoder.embed_tokens)
        own = mtp_cache_spec(self.head.layer.cache_spec, decoder.config.hidden_size, build.kind)
        self.cache_specs = [*decoder.cache_specs, own]

    def forward(self, batch: ForwardBatch, caches: list[LayerCache]) -> Tensor:
        """As `Decoder.forward`, with the head's cache after the layers'."""
        hidden: Tensor = self.decoder(batch, caches[:-1])
        self.head.catch_up(hidden, batch, caches[-1])
        return hidden

    def draft(self, batch: ForwardBatch, previous: Tensor, cache: LayerCache) -> Tensor:
        """What `MTPHead.forward` says. `cache` is the head's."""
        hidden: Tensor = self.head(batch, previous, cache)
        return hidden

    def last_hidden(self, seqs: Sequence[CacheSequence], cache: LayerCache) -> Tensor:
        """Of each sequence's last computed token, [S, hidden_size]. `cache` is the head's."""
        rows = [
            cache["hidden_log"][seq.slot, seq.num_pending - 1]
            if seq.num_pending
            else cache["last_hidden"][seq.slot]
            for seq in seqs
        ]
        return torch.stack(rows)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.decoder.logits(hidden)
