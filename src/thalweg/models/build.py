"""From a checkpoint to a model that can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.layers.build import BuildContext
from thalweg.models.decoder import Decoder

if TYPE_CHECKING:
    from thalweg.config import EngineConfig
    from thalweg.models.loader import Checkpoint, Progress
    from thalweg.ops.registry import KernelSelector

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
"""The names in `EngineConfig.dtype`."""


def build_model(
    checkpoint: Checkpoint,
    config: EngineConfig,
    *,
    kernels: KernelSelector,
    max_model_len: int,
    progress: Progress | None = None,
) -> Decoder:
    """Read the weights and bind every op; `kernels` records what was chosen."""
    facts = checkpoint.config
    build = BuildContext(
        kernels=kernels,
        dtype=DTYPES[config.dtype],
        device=config.device,
        norm=facts.norm,
        block_size=config.block_size,
        max_model_len=max_model_len,
    )
    return Decoder(facts, checkpoint.weights(progress), build)
