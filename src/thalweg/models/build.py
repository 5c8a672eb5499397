"""From a checkpoint to a model that can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from thalweg.layers.build import BuildContext
from thalweg.layers.weights import Weights
from thalweg.models.decoder import Decoder
from thalweg.models.memory import cache_specs, kv_dtype_of
from thalweg.models.mtp import MTPModel
from thalweg.models.quantiser import Quantiser
from thalweg.ops.extension import default_threads, set_num_threads
from thalweg.ops.registry import ExecutionPlan, KernelSelector

if TYPE_CHECKING:
    from thalweg.config import EngineConfig
    from thalweg.models.loader import Checkpoint, Progress
    from thalweg.models.quantisation import Rounding

__all__ = [
    "DTYPES",
    "BuiltModel",
    "ExecutionPlan",
    "build_model",
    "cache_specs",
    "set_num_threads",
]

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
"""The names in `EngineConfig.dtype`."""


@dataclass(frozen=True, slots=True, eq=False)
class BuiltModel:
    model: Decoder
    mtp: MTPModel | None
    """The same with its head, where the checkpoint has one."""
    dtype: torch.dtype
    """Of activations."""
    kernels: KernelSelector
    """What was chosen for the model; the sampler's ops are bound with it too."""
    rounding: Rounding | None
    """What `EngineConfig.quantize` did."""
    num_threads: int
    """Of a pass."""


def build_model(
    checkpoint: Checkpoint,
    config: EngineConfig,
    *,
    max_model_len: int,
    progress: Progress | None = None,
) -> BuiltModel:
    """Read the weights, bind every op, and give the cores to whoever computes."""
    set_num_threads(config.threads)
    kernels = KernelSelector(config.kernels)
    facts = checkpoint.config
    build = BuildContext(
        kernels=kernels,
        dtype=DTYPES[config.dtype],
        device=config.device,
        norm=facts.norm,
        block_size=config.block_size,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype_of(config),
    )
    weights, quantiser = checkpoint.weights(progress), None
    if config.quantize != "none":
        quantiser = Quantiser(weights.read, config.quantize)
        weights = Weights(quantiser.read)
    model = Decoder(facts, weights, build)
    mtp = MTPModel(model, weights, build) if facts.mtp_layers else None
    if all(choice.kernel == "cpu" for choice in kernels.plan().choices):
        torch.set_num_threads(1)  # its pool would take cores from the one all ops run on
    rounding = None if quantiser is None else quantiser.rounding()
    num_threads = config.threads or default_threads()
    return BuiltModel(model, mtp, build.dtype, kernels, rounding, num_threads)
