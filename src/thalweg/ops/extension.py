"""The compiled kernels, where this installation has them, and what all their bindings share."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from thalweg.config import kernel_level
from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

SOURCES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The dtypes weights are packed from, as the extension numbers them."""

NOT_BUILT = "the extension is not built"


def _load() -> tuple[ModuleType | None, str]:
    """The module, or None and why not."""
    if importlib.util.find_spec("thalweg._kernels") is None:
        return None, NOT_BUILT
    try:
        module = importlib.import_module("thalweg._kernels")
    except ImportError as error:
        return None, f"the extension does not load: {error}"
    if (level := kernel_level()) is not None:
        if level not in module.levels():
            known = ", ".join(module.levels())
            raise ConfigError(f"kernel level {level!r} is not available here: use {known}")
        module.set_level(level)
    module.set_num_threads(default_threads())
    return module, ""


def default_threads() -> int:
    """The least of physical cores, affinity mask and cgroup quota; at least 1."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    count = len(allowed) if allowed else os.cpu_count() or 1
    return max(1, min(count, _physical_cores(allowed) or count, _quota() or count))


def _physical_cores(allowed: set[int] | None) -> int:
    """Cores that the allowed logical processors sit on; 0 if the system does not say."""
    cores = set()
    for cpu in allowed or ():
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        if not siblings.is_file():
            return 0
        cores.add(siblings.read_text())
    return len(cores)


def _quota() -> int:
    """Whole processors that the control group may use; 0 without a limit."""
    limit = Path("/sys/fs/cgroup/cpu.max")
    if not limit.is_file():
        return 0
    quota, period = limit.read_text().split()
    return 0 if quota == "max" else max(1, int(quota) // int(period))


_MODULE, _REASON = _load()
_PACKED = WeakIdKeyDictionary()


def kernels() -> Any:
    """The extension module; only where `reason` is None."""
    assert _MODULE is not None, _REASON
    return _MODULE


def set_num_threads(count: int | None) -> None:
    """Threads of a pass, on the compiled kernels and on torch's; None is each one's default."""
    if _MODULE is not None:
        _MODULE.set_num_threads(default_threads() if count is None else count)
    if count is not None:
        torch.set_num_threads(count)


def reason(dtype: torch.dtype, device: str | torch.device = "cpu") -> str | None:
    """Why the extension cannot compute with activations of this dtype there, or None."""
    if _MODULE is None:
        return _REASON
    if torch.device(device).type != "cpu":
        return f"device {device}"
    return None if dtype == torch.float32 else f"{str(dtype).removeprefix('torch.')} activations"


def packed(weight: Tensor) -> Any:
    """A matrix [N, K] in panels; the same object for the same tensor, so tied ones share it."""
    if (known := _PACKED.get(weight)) is not None:
        return known
    rows = weight.contiguous()
    num_rows, num_in = rows.shape
    made = kernels().Packed([(rows.data_ptr(), SOURCES[rows.dtype], num_rows, 0)], num_in)
    _PACKED[weight] = made
    return made


def unit_stride(x: Tensor) -> Tensor:
    """x itself, or a copy if its last axis is not contiguous."""
    assert x.dtype == torch.float32
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
