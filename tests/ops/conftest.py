from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def poisoned_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that `torch.empty` hands out holds NaN, so an unwritten output shows."""

    def poisoned(function: Any) -> Any:
        def empty(*args: Any, **kwargs: Any) -> Tensor:
            out: Tensor = function(*args, **kwargs)
            return out.fill_(torch.nan) if out.is_floating_point() else out.fill_(-(2**30))

        return empty

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
