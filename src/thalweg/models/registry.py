"""The architectures by the names checkpoints give them. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import CheckpointError
from thalweg.models.gguf_hybrid import (
    describe_gguf_qwen3_5,
    describe_gguf_qwen3_5_moe,
    describe_gguf_qwen3_next,
)
from thalweg.models.gguf_hybrid_weights import HybridWeights
from thalweg.models.gguf_llama import LlamaWeights, describe_gguf_llama
from thalweg.models.gguf_qwen import (
    QwenWeights,
    describe_gguf_qwen2,
    describe_gguf_qwen3,
    describe_gguf_qwen3_moe,
)
from thalweg.models.llama_plan import describe_llama, describe_qwen2
from thalweg.models.qwen3_next_plan import (
    describe_qwen3_5,
    describe_qwen3_5_moe,
    describe_qwen3_next,
)
from thalweg.models.qwen3_plan import describe_qwen3, describe_qwen3_moe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from thalweg.config.model import ModelConfig
    from thalweg.models.gguf_facts import GGUFFacts
    from thalweg.models.hf_config import HFConfig
    from thalweg.models.weight_map import WeightMap


@dataclass(frozen=True, slots=True)
class HFArchitecture:
    describe: Callable[[HFConfig], ModelConfig]
    fused_gdn: bool = False
    """How its weights lie: see `HFWeights`."""


@dataclass(frozen=True, slots=True)
class GGUFArchitecture:
    describe: Callable[[GGUFFacts], ModelConfig]
    weight_map: Callable[[ModelConfig], WeightMap]


HF: Mapping[str, HFArchitecture] = {
    "llama": HFArchitecture(describe_llama),
    "qwen2": HFArchitecture(describe_qwen2),
    "qwen3": HFArchitecture(describe_qwen3),
    "qwen3_moe": HFArchitecture(describe_qwen3_moe),
    "qwen3_next": HFArchitecture(describe_qwen3_next, fused_gdn=True),
    "qwen3_5": HFArchitecture(describe_qwen3_5),
    "qwen3_5_text": HFArchitecture(describe_qwen3_5),
    "qwen3_5_moe": HFArchitecture(describe_qwen3_5_moe),
    "qwen3_5_moe_text": HFArchitecture(describe_qwen3_5_moe),
}

GGUF: Mapping[str, GGUFArchitecture] = {
    "llama": GGUFArchitecture(describe_gguf_llama, LlamaWeights.of),
    "qwen2": GGUFArchitecture(describe_gguf_qwen2, QwenWeights.of),
    "qwen3": GGUFArchitecture(describe_gguf_qwen3, QwenWeights.of),
    "qwen3moe": GGUFArchitecture(describe_gguf_qwen3_moe, QwenWeights.of),
    "qwen3next": GGUFArchitecture(describe_gguf_qwen3_next, HybridWeights.grouped),
    "qwen35": GGUFArchitecture(describe_gguf_qwen3_5, HybridWeights.tiled),
    "qwen35moe": GGUFArchitecture(describe_gguf_qwen3_5_moe, HybridWeights.tiled),
}


def hf_architecture(hf: HFConfig) -> HFArchitecture:
    for model_type in (hf.outer_model_type, hf.model_type):
        if model_type not in HF:
            raise CheckpointError(f"unknown model_type {model_type!r}: known are {', '.join(HF)}")
    return HF[hf.model_type]


def gguf_architecture(name: object) -> GGUFArchitecture:
    if not isinstance(name, str) or name not in GGUF:
        raise CheckpointError(f"unknown GGUF architecture {name!r}: known are {', '.join(GGUF)}")
    return GGUF[name]
