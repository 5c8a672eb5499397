"""The compiled kernels, where this installation has them, and what all their bindings share."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.utils.weak import WeakIdKeyDictionary

from thalweg.config import kernel_level
from thalweg.errors import ConfigError
from thalweg.ops.weight import Blocks, Matrix

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.weight import Stored, Weight

C = TypeVar("C")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SOURCES = (*FLOATS, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
"""What weights are packed from, dtypes and types of blocks, as the extension numbers them."""

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
_OBJECTS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_PASSES: WeakKeyDictionary[ForwardBatch, Any] = WeakKeyDictionary()


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


def packed(weight: Weight) -> Any:
    """A matrix [N, K] in panels; the same object for the same weight, so tied ones share it."""
    if (known := _PACKED.get(weight)) is not None:
        return known
    stored = weight.parts if isinstance(weight, Matrix) else (weight,)
    parts = [_as_rows(part) for part in stored]
    _PACKED[weight] = made = kernels().Packed([_address(part) for part in parts], weight.shape[1])
    return made


def _as_rows(part: Stored) -> Stored:
    """As the extension reads it: contiguous, of one of `SOURCES`."""
    if isinstance(part, Blocks):
        return Blocks(part.data.contiguous(), part.type_name, part.groups)
    return (part if part.dtype in FLOATS else part.float()).contiguous()


def _address(part: Stored) -> tuple[int, int, int, int]:
    """Of rows: where, what, how many, and where the order of their groups is, or 0."""
    if isinstance(part, Blocks):
        order = 0 if part.groups is None else part.groups.data_ptr()
        return part.data.data_ptr(), SOURCES.index(part.type_name), part.shape[0], order
    return part.data_ptr(), SOURCES.index(part.dtype), part.shape[0], 0


def made_of(call: C, computing: Any) -> C:
    """`call`, which an object of the extension computes: `object_of` will know which."""
    _OBJECTS[call] = computing
    return call


def object_of(call: object) -> Any | None:
    """What computes a bound op, to be made a part of something larger; None: another kernel."""
    return _OBJECTS.get(call)


def pass_of(batch: ForwardBatch) -> Any:
    """The tensors of a batch as the extension reads them, handed over once for all its layers."""
    if (known := _PASSES.get(batch)) is not None:
        return known
    shape, paged, state = batch.shape, batch.paged, batch.state
    tensors = (
        batch.cu_seqlens,
        batch.seq_lens,
        batch.positions,
        batch.rope_positions,
        paged.block_table,
        state.load_slots,
        state.store_slots,
        state.replay.cu_seqlens,
        state.replay.store_slots,
    )
    assert all(t.dtype == torch.int32 and t.stride(-1) == 1 for t in tensors if t.numel())
    assert paged.slot_mapping.dtype == torch.int64 and paged.slot_mapping.is_contiguous()
    _PASSES[batch] = made = kernels().Pass(
        shape.num_tokens,
        shape.num_seqs,
        batch.cu_seqlens.data_ptr(),
        batch.seq_lens.data_ptr(),
        batch.positions.data_ptr(),
        batch.rope_positions.data_ptr(),
        paged.block_table.data_ptr(),
        paged.block_table.stride(0),
        paged.slot_mapping.data_ptr(),
        state.load_slots.data_ptr(),
        state.store_slots.data_ptr(),
        _replay(batch),
    )
    return made


def _replay(batch: ForwardBatch) -> Any:
    index = batch.state.replay
    rows = (index.pending, index.pending_at, index.new_at, index.logged, index.logged_at)
    assert all(t.dtype == torch.int64 for t in rows)
    return kernels().Replay(
        batch.shape.num_pending,
        batch.shape.num_logged,
        *(t.data_ptr() for t in rows),
        index.cu_seqlens.data_ptr(),
        index.store_slots.data_ptr(),
    )


def unit_stride(x: Tensor) -> Tensor:
    """x itself, or a copy if its last axis is not contiguous."""
    assert x.dtype == torch.float32
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def over_rows(kernel: Any, num_in: int, num_out: int) -> Callable[[Tensor], Tensor]:
    """x: [T, num_in] -> [T, num_out], by a kernel that runs on (x, its stride, T, out)."""

    def call(x: Tensor) -> Tensor:
        assert x.shape[1] == num_in
        x = unit_stride(x)
        out = torch.empty((x.shape[0], num_out))
        kernel.run(x.data_ptr(), x.stride(0), x.shape[0], out.data_ptr())
        return out

    return made_of(call, kernel)
