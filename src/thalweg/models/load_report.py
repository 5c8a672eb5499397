"""What was taken from a checkpoint, what was left and why, as the user sees it. Torch-free."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.models.source import PACKED_AS, WIDENED

if TYPE_CHECKING:
    from thalweg.models.binding import Binding


@dataclass(frozen=True, slots=True)
class TypeTotal:
    """The tensors of one stored type."""

    dtype_name: str
    num_tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Stored tensors that were left out for one reason."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """Weights that are not stored as they are used: `change` was done to `num_weights` of them."""

    change: str
    num_weights: int


@dataclass(frozen=True, slots=True)
class LoadReport:
    architecture: str
    loaded: tuple[TypeTotal, ...]
    skipped: tuple[Skipped, ...]
    changed: tuple[Changed, ...]
    notes: tuple[str, ...]

    @property
    def num_tensors(self) -> int:
        return sum(total.num_tensors for total in self.loaded)

    @property
    def nbytes(self) -> int:
        return sum(total.nbytes for total in self.loaded)

    def text(self) -> str:
        """A few lines for people."""
        types = ", ".join(
            f"{total.dtype_name} {total.num_tensors} tensors {_megabytes(total.nbytes)}"
            for total in self.loaded
        )
        lines = [f"{self.architecture}: {types}"]
        for skipped in self.skipped:
            lines.append(f"left out {_count(skipped.names)} ({skipped.reason})")
        for changed in self.changed:
            lines.append(f"{changed.change}: {changed.num_weights} weights")
        if packed := [line for total in self.loaded if (line := packed_as(total.dtype_name))]:
            lines.append(f"on the compiled kernels: {', '.join(packed)}")
        return "\n".join([*lines, *self.notes])


def packed_as(dtype_name: str) -> str:
    """What becomes of a quantised type on the compiled kernels; empty for one that is none."""
    if dtype_name not in PACKED_AS:
        return ""
    wider = ", codes in a byte" if dtype_name in WIDENED else ""
    return f"{dtype_name} as {PACKED_AS[dtype_name]} (same values{wider})"


def make_report(architecture: str, binding: Binding, *, notes: tuple[str, ...]) -> LoadReport:
    by_type: dict[str, list[int]] = defaultdict(list)
    for info in binding.used.values():
        by_type[info.dtype_name].append(info.nbytes)
    changes: dict[str, int] = defaultdict(int)
    for bound in binding.weights.values():
        if bound.recipe.change:
            changes[bound.recipe.change] += 1
    return LoadReport(
        architecture=architecture,
        loaded=tuple(TypeTotal(n, len(sizes), sum(sizes)) for n, sizes in by_type.items()),
        skipped=tuple(Skipped(reason, names) for reason, names in binding.skipped.items()),
        changed=tuple(Changed(change, count) for change, count in changes.items()),
        notes=notes,
    )


def _count(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} tensors such as {names[0]}"


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
