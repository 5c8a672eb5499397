"""How passes run: compiled, matrix products in bf16.

Compiling makes a pass about a quarter faster and takes a minute for each of the two shapes; bf16
products are half as long again as fast where the CPU has instructions for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .model import TinyModel


def compile_layers(model: TinyModel) -> None:
    """Layers of one kind share their compiled code."""
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    model.mtp.compile(dynamic=False)


def mixed_precision() -> torch.autocast:
    """Where forward passes belong. The delta rule leaves it: its state sums over long texts."""
    return torch.autocast("cpu", torch.bfloat16)
