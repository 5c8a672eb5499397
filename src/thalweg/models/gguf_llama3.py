"""Llama 3's rope scaling, which GGUF files hold as a tensor of divisors of the frequencies."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from thalweg.config.model import RopeConfig
from thalweg.errors import CheckpointError

if TYPE_CHECKING:
    from thalweg.models.source import StoredTensor

FACTORS = "rope_freqs.weight"
LOW, HIGH, CONTEXT = 1.0, 4.0, 8192.0
"""`low_freq_factor`, `high_freq_factor` and `original_max_position_embeddings` of every Llama 3."""


def read_llama3(tensor: StoredTensor, rope: RopeConfig) -> RopeConfig:
    """The rule whose numbers these are. Other numbers raise `CheckpointError`."""
    info = tensor.info
    if info.shape != (rope.rotary_dim // 2,) or info.dtype_name != "F32":
        raise CheckpointError(
            f"GGUF tensor {FACTORS} has shape {list(info.shape)} and type {info.dtype_name}: "
            f"[{rope.rotary_dim // 2}] of F32 is needed"
        )
    with tensor.path.open("rb") as file:
        file.seek(tensor.offset)
        stored = struct.unpack(f"<{info.shape[0]}f", file.read(info.nbytes))
    factor = max(stored)
    if rope.scaling != "default" or not factor > 1 or not _close(stored, rope, factor):
        raise CheckpointError(
            f"GGUF tensor {FACTORS} is not supported: only Llama 3's rope scaling, which is "
            f"low_freq_factor {LOW}, high_freq_factor {HIGH} and a context of {CONTEXT:.0f}"
        )
    params = {
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": CONTEXT,
    }
    return RopeConfig(rope.rotary_dim, rope.theta, "llama3", tuple(sorted(params.items())))


def _close(stored: tuple[float, ...], rope: RopeConfig, factor: float) -> bool:
    wanted = (_divisor(rope, i, factor) for i in range(len(stored)))
    return all(math.isclose(x, y, rel_tol=1e-4) for x, y in zip(stored, wanted, strict=True))


def _divisor(rope: RopeConfig, pair: int, factor: float) -> float:
    """Long wavelengths are divided by the factor, short ones kept, between them a blend."""
    wavelength = 2 * math.pi * rope.theta ** (2 * pair / rope.rotary_dim)
    smooth = min(max((CONTEXT / wavelength - LOW) / (HIGH - LOW), 0.0), 1.0)
    return 1 / ((1 - smooth) / factor + smooth)
