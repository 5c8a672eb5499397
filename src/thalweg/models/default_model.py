"""The model that comes with the package."""

from __future__ import annotations

from pathlib import Path


def default_model_path() -> Path:
    """The directory of the bundled checkpoint (`qwen3_5`, 2.8 M parameters, with an MTP layer).

    Its README.md says what it was trained on, what it can do and what it cannot.
    """
    return Path(__file__).parent / "thalweg_tiny"
