"""A small random model of every architecture with weights of every type that kernels keep."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
import torch
from torch import Tensor

from any_blocks import SCALES
from checkpoints import HYBRIDS, edit_config, write_config
from gguf_files import random_blocks
from harness import Tiny, build_context, random_weights
from thalweg.layers.weights import Weights
from thalweg.models.decoder import Decoder
from thalweg.models.headers import read_config
from thalweg.models.quantisation import is_rounded
from thalweg.ops.registry import KernelSelector
from thalweg.ops.weight import Blocks

if TYPE_CHECKING:
    from thalweg.config import ModelConfig
    from thalweg.ops.weight import Stored

K = 256
"""Inputs of every matrix: a block of the K types."""
WIDTHS = {
    "hidden_size": K,
    "num_hidden_layers": 2,
    "intermediate_size": K,
    "moe_intermediate_size": K,
    "shared_expert_intermediate_size": K,
    "head_dim": 64,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 64,
}
FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BLOCKS = {
    "q8": "Q8_0",
    "q4": "Q4_0",
    "q4m": "Q4_1",
    "q4k": "Q4_K",
    "q5k": "Q5_K",
    "q6k": "Q6_K",
}
KINDS = (*FLOATS, *BLOCKS)
"""The kernels' names of what they keep."""


@cache
def family(model_type: str) -> ModelConfig:
    """Two layers; of a hybrid one of each kind."""
    with tempfile.TemporaryDirectory() as name:
        path = write_config(Path(name), model_type)
        edit_config(path, **WIDTHS)
        first = "linear_attention" if model_type in HYBRIDS else "full_attention"
        edit_config(path, layer_types=[first, "full_attention"])
        plan = read_config(path)
    assert plan is not None
    return replace(plan.config, mtp_layers=())


def stored(name: str, weight: Tensor, kind: str) -> Stored:
    """A weight as a checkpoint of that type has it. Blocks hold other values, as large."""
    if not is_rounded(name, tuple(weight.shape)):
        return weight
    if kind in FLOATS:
        return weight.to(FLOATS[kind])
    type_name = BLOCKS[kind]
    ggml_type = gguf.GGMLQuantizationType[type_name]
    data = random_blocks(ggml_type, weight.numel())
    values = gguf.dequantize(data, ggml_type)
    for start in SCALES[type_name]:
        scales = data[:, start : start + 2].copy().view(np.float16)
        smaller = scales * np.float16(float(weight.square().mean() ** 0.5) / values.std())
        data[:, start : start + 2] = smaller.view(np.uint8)
    return Blocks(torch.from_numpy(data).reshape(*weight.shape[:-1], -1), type_name)


def build(model_type: str, kind: str, *, max_model_len: int = 576) -> Tiny:
    """On the compiled kernels of the level that is set."""
    config = family(model_type)
    weights = random_weights(config)
    context = build_context(config, KernelSelector("cpu"), max_model_len=max_model_len)
    decoder = Decoder(config, Weights(lambda name: stored(name, weights[name], kind)), context)
    return Tiny(decoder, decoder.cache_specs, 16)
