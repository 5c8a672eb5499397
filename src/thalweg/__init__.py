"""Thalweg: an inference engine for hybrid LLMs, with recurrent state as a first-class memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thalweg.config import EngineConfig, RequestOptions, SamplingParams
from thalweg.errors import (
    CheckpointError,
    ConfigError,
    OutOfCache,
    QueueFull,
    RequestError,
    ThalwegError,
)

if TYPE_CHECKING:
    from thalweg.engine.llm import LLM

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "CheckpointError",
    "ConfigError",
    "EngineConfig",
    "OutOfCache",
    "QueueFull",
    "RequestError",
    "RequestOptions",
    "SamplingParams",
    "ThalwegError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """`LLM` brings torch with it, so it is imported when it is asked for."""
    if name == "LLM":
        from thalweg.engine.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
