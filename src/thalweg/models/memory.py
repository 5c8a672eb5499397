"""What a model will take, from its config and headers alone. Torch-free."""

from __future__ import annotations

from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING

from thalweg.config.engine import KV_DTYPES, QUANTIZE
from thalweg.config.model import AttentionConfig, MLPConfig
from thalweg.layers.cache_spec import cache_spec, mtp_cache_spec
from thalweg.memory.plan import ModelMemory
from thalweg.memory.spec import CacheSpec, DType
from thalweg.models.quantisation import is_rounded, refuse_quantised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thalweg.config import EngineConfig, ModelConfig
    from thalweg.config.model import LayerConfig
    from thalweg.models.headers import Headers
    from thalweg.models.plan import ModelPlan

PACKED = {
    "F64": 4.0,
    "F32": 4.0,
    "F16": 2.0,
    "BF16": 2.0,
    "Q4_0": 0.5 + 2 / 32,
    "Q4_1": 0.5 + 4 / 32,
    "Q5_0": 1 + 2 / 32,
    "Q5_1": 1 + 8 / 32,
    "Q8_0": 1 + 2 / 32,
    "Q4_K": 0.5 + 8 / 32,
    "Q5_K": 1 + 8 / 32,
    "Q6_K": 1 + 4 / 16,
}
"""Bytes of a value in the packed kernels' matrices, by what it is stored as: codes, scales and
minimums of `csrc/packing.h`. Numbers stored wide that need less are packed narrower yet."""
LOGITS_ROWS = 32
"""Rows of logits that are in memory at once, with copies for editing and sorting."""
LOGITS_COPIES = 4


def cache_specs(facts: ModelConfig, config: EngineConfig) -> list[CacheSpec]:
    """What each layer remembers, in order, and then what an MTP head does."""
    dtype, kv_dtype = DType.named(config.dtype), kv_dtype_of(config)
    layers = [
        cache_spec(layer.mixer, dtype, kv_dtype=kv_dtype)
        for layer in (*facts.layers, *facts.mtp_layers)
    ]
    num_layers = len(facts.layers)
    heads = [mtp_cache_spec(each, facts.hidden_size, dtype) for each in layers[num_layers:]]
    return layers[:num_layers] + heads


def kv_dtype_of(config: EngineConfig) -> DType:
    return DType.named(KV_DTYPES[config.kv_dtype] or config.dtype)


def model_memory(headers: Headers, config: EngineConfig) -> ModelMemory:
    """Of a checkpoint whose headers were read. Raises `ConfigError` if it cannot be quantised."""
    if config.quantize != "none":
        refuse_quantised(headers.binding, config.quantize)
    return _memory(headers.plan.config, config, weights=_weights(headers, config))


def memory_without_weights(plan: ModelPlan, config: EngineConfig) -> ModelMemory:
    """Of a model of which there is a config alone: its weights are taken to be bfloat16."""
    kept, rounded = PACKED["BF16"], PACKED[QUANTIZE.get(config.quantize, "BF16")]
    weights = sum(
        (rounded if is_rounded(weight.name, weight.shape) else kept) * prod(weight.shape)
        for weight in plan.weights
    )
    return _memory(plan.config, config, weights=int(weights))


def _memory(facts: ModelConfig, config: EngineConfig, *, weights: int) -> ModelMemory:
    return ModelMemory(
        weights=weights,
        scratch=_scratch(facts, config),
        specs=tuple(cache_specs(facts, config)),
        max_model_len=facts.max_position_embeddings,
    )


def _weights(headers: Headers, config: EngineConfig) -> int:
    itemsize = DType.named(config.dtype).itemsize
    is_packed = (
        config.kernels in ("auto", "cpu")
        and config.dtype == "float32"
        and find_spec("thalweg._kernels") is not None
    )
    total = 0.0
    for name, info in headers.binding.used.items():
        is_matrix = sum(size > 1 for size in info.shape) > 1
        stored = info.dtype_name
        if config.quantize != "none" and is_rounded(name, info.shape):
            stored = QUANTIZE[config.quantize]
        each = PACKED[stored] if is_packed and is_matrix else itemsize
        total += each * prod(info.shape)
    return int(total)


def _scratch(facts: ModelConfig, config: EngineConfig) -> int:
    """Activations of the widest layer and of the logits, in a pass that is as full as may be."""
    num_rows = config.max_num_batched_tokens
    width = 4 * facts.hidden_size + max(sum(_widths(layer)) for layer in facts.layers)
    logits = LOGITS_COPIES * min(LOGITS_ROWS, num_rows) * facts.vocab_size
    return (num_rows * width + logits) * DType.named(config.dtype).itemsize


def _widths(layer: LayerConfig) -> Iterator[int]:
    """Of what a layer holds of a token at once."""
    mixer, mlp = layer.mixer, layer.mlp
    if isinstance(mixer, AttentionConfig):
        yield (3 * mixer.num_heads + 2 * mixer.num_kv_heads) * mixer.head_dim
    else:
        yield 2 * mixer.conv_dim + 3 * mixer.value_dim
    if isinstance(mlp, MLPConfig):
        yield 3 * mlp.intermediate_size
    else:
        yield 3 * (mlp.num_experts_per_tok * mlp.intermediate_size + mlp.shared_intermediate_size)
