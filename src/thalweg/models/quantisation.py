"""What `quantize` rounds, and what came of it. Torch-free: `quantiser` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import ConfigError
from thalweg.models.source import QUANTIZED

if TYPE_CHECKING:
    from thalweg.models.binding import Binding

GROUP = 32
SMALL = ("norm.weight", "conv1d.weight", "mlp.gate.weight", "shared_expert_gate.weight")
"""Ends of names of weights that stay as they are: they are few, and routing depends on them."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What `quantize` did to a model's matrices."""

    kind: str
    num_matrices: int
    error: float
    """RMS of the differences to the stored values, relative to the RMS of these."""
    worst_name: str
    worst_error: float

    def text(self) -> str:
        return (
            f"quantised to {self.kind}: {self.num_matrices} matrices, relative RMS error "
            f"{self.error:.3%}; the largest {self.worst_error:.3%} in {self.worst_name}"
        )


def is_rounded(name: str, shape: tuple[int, ...]) -> bool:
    """Whether `quantize` changes a weight."""
    return len(shape) > 1 and shape[-1] % GROUP == 0 and not name.endswith(SMALL)


def refuse_quantised(binding: Binding, kind: str) -> None:
    """Raises `ConfigError` for a checkpoint that is quantised: twice rounded is worse."""
    for name, info in binding.used.items():
        if info.dtype_name in QUANTIZED:
            raise ConfigError(
                f"quantize = {kind!r} is not allowed: the model is quantised already "
                f"({name} is {info.dtype_name})"
            )
