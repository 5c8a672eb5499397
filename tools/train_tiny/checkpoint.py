"""The trained weights under the names of a `qwen3_5` checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

from .model import TinyModel
from .model_config import ModelConfig

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def tensors(model: TinyModel, dtype: torch.dtype) -> dict[str, Tensor]:
    """All tensors, contiguous; the output projection is tied and has none of its own."""
    return {name: x.detach().to(dtype).contiguous() for name, x in model.state_dict().items()}


def save_weights(model: TinyModel, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Writes `model.safetensors` and says where."""
    path = folder / "model.safetensors"
    save_file(tensors(model, dtype), path, metadata={"format": "pt"})
    return path


def load_weights(folder: Path) -> TinyModel:
    """The exported model of `folder`, in fp32."""
    model = TinyModel(ModelConfig())
    model.load_state_dict(
        {k: x.float() for k, x in load_file(folder / "model.safetensors").items()}
    )
    return model
