"""The mixtures of 32 requests, each made once a session."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from mixture import Mixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from thalweg.text import Tokenizer


@pytest.fixture(scope="session")
def mixture(small_tokenizer: Tokenizer) -> Callable[[str], Mixture]:
    """By the names of `harness.MODELS`."""
    return cache(lambda name: Mixture(name, small_tokenizer))
