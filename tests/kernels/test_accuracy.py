"""How far a whole model of 24 layers is from float64."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from families import FLOATS, family, stored
from harness import build_context, random_weights
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import NULL, SKIP
from thalweg.layers.weights import Weights
from thalweg.memory.storage import CacheStorage
from thalweg.models.decoder import Decoder
from thalweg.ops.registry import KernelSelector

if TYPE_CHECKING:
    from torch import Tensor

NUM_TOKENS = 64
OUTPUTS = ("o_proj.weight", "out_proj.weight", "down_proj.weight")


def logits(kind: str, kernels: str, dtype: torch.dtype) -> Tensor:
    """Of 18 gated delta nets and 6 attentions."""
    hybrid = family("qwen3_5")
    delta, attention = hybrid.layers
    config = replace(hybrid, layers=(delta, delta, delta, attention) * 6)
    # As is usual, what a layer adds is small beside what it gets: the model is well-conditioned.
    weights = {
        name: weight * (48**-0.5 if name.endswith(OUTPUTS) else 1)
        for name, weight in random_weights(config).items()
    }
    build = build_context(config, KernelSelector(kernels), dtype=dtype, max_model_len=64)
    model = Decoder(config, Weights(lambda name: stored(name, weights[name], kind)), build)
    storage = CacheStorage(model.cache_specs, 6, 2, block_size=16)
    tokens = [7 * i * i % 512 for i in range(NUM_TOKENS)]
    seq = SequenceInput(tokens, 0, [1, 2, 3, 4], NULL, [*[SKIP] * (NUM_TOKENS - 1), 1])
    return model.logits(model(ForwardBatch.prefill(seq, block_size=16), storage.layers))


@pytest.mark.parametrize("kind", FLOATS)
def test_logits_of_24_layers(kind: str) -> None:
    """Relative RMS. What rounding activations to 8 bits costs is a matter of trained weights: see
    the perplexity in `tests/peers`."""
    exact = logits(kind, "torch", torch.float64)
    error = (logits(kind, "cpu", torch.float32).double() - exact).norm() / exact.norm()
    assert error <= 1e-5
