"""Options and facts, frozen: the engine's, a request's, a model's. Torch-free."""

from thalweg.config.engine import EngineConfig, default_model, engine_config, kernel_level
from thalweg.config.model import (
    AttentionConfig,
    FeedForwardConfig,
    GatedDeltaNetConfig,
    LayerConfig,
    MixerConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
    NormConfig,
    RopeConfig,
)
from thalweg.config.request import RequestOptions
from thalweg.config.rollback import Rollback
from thalweg.config.sampling import SamplingParams

__all__ = [
    "AttentionConfig",
    "EngineConfig",
    "FeedForwardConfig",
    "GatedDeltaNetConfig",
    "LayerConfig",
    "MLPConfig",
    "MixerConfig",
    "MoEConfig",
    "ModelConfig",
    "NormConfig",
    "RequestOptions",
    "Rollback",
    "RopeConfig",
    "SamplingParams",
    "default_model",
    "engine_config",
    "kernel_level",
]
