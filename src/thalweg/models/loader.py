"""From a path to a model's facts, its weights, and a report of what was loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from thalweg.layers.weights import Weights
from thalweg.models.headers import Headers, TokenizerDirectory, TokenizerMetadata, read_headers
from thalweg.models.mapped_source import MappedSource
from thalweg.models.weight_reader import WeightReader
from thalweg.ops.weight import values_of

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.config.model import ModelConfig
    from thalweg.models.headers import Tensors
    from thalweg.models.load_report import LoadReport
    from thalweg.models.plan import ModelPlan

__all__ = ["Checkpoint", "Progress", "TokenizerDirectory", "TokenizerMetadata", "open_checkpoint"]

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes in all, as the file holds them."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint whose headers were read and found to fit; its data is still on disk."""

    headers: Headers

    @property
    def path(self) -> Path:
        return self.headers.path

    @property
    def plan(self) -> ModelPlan:
        return self.headers.plan

    @property
    def tokenizer(self) -> TokenizerDirectory | TokenizerMetadata:
        return self.headers.tokenizer

    @property
    def report(self) -> LoadReport:
        return self.headers.report

    @property
    def config(self) -> ModelConfig:
        return self.plan.config

    def weights(self, progress: Progress | None = None) -> Weights:
        """The canonical weights, each read when it is asked for.

        They come as they are stored, and may be views of the mapped files: copy before writing.
        `progress` hears of each stored tensor when it is first read.
        """
        source = MappedSource(self.headers.tensors)
        return Weights(WeightReader(source, self.headers.binding, progress=progress).read)


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A Hugging Face directory of safetensors, or a GGUF file (of several: the first part).

    Reads headers only (and the two word matrices where a config ties two stored ones). Raises
    `CheckpointError` for anything that is missing, damaged, contradictory or not implemented.
    """
    return Checkpoint(read_headers(path, are_equal=_are_equal))


def _are_equal(tensors: Tensors, one: str, other: str) -> bool:
    source = MappedSource(tensors)
    x, y = values_of(source.read(one)), values_of(source.read(other))
    dtype = torch.promote_types(x.dtype, y.dtype)
    return torch.equal(x.to(dtype), y.to(dtype))
