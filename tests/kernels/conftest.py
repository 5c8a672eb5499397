from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def built() -> Iterator[None]:
    """Skips where the extension is not built; leaves its level and threads as they were."""
    if (reason := extension.reason(torch.float32)) is not None:
        pytest.skip(reason)
    kernels = extension.kernels()
    level, threads = kernels.level(), kernels.num_threads()
    yield
    kernels.set_level(level)
    kernels.set_num_threads(threads)
