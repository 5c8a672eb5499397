"""Which passes run compiled.

Compiling makes a pass about a quarter faster and takes minutes for each shape, so only the short
rows are compiled: most steps use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .batches import SHORT

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .batches import Batch
    from .model import TinyModel


def compile_layers(model: TinyModel) -> None:
    """Layers of one kind share their compiled code."""
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    model.mtp.compile(dynamic=False)


def running(batch: Batch) -> AbstractContextManager[None]:
    """Where the passes of a batch belong: compiled for short rows, as written for long ones."""
    short = batch.tokens.shape == (SHORT.rows, SHORT.length)
    return torch.compiler.set_stance("default" if short else "force_eager")
