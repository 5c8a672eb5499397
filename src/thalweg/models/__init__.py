"""Architectures, checkpoints and what is built of them."""

from thalweg.models.default_model import default_model_path

__all__ = ["default_model_path"]
