"""Ties a model's canonical weights to a checkpoint's tensors, from headers alone. Torch-free.

All faults of a checkpoint's tensors are found here, before any data is read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import CheckpointError
from thalweg.models.source import READABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from thalweg.models.plan import ModelPlan, Shape, WeightSpec
    from thalweg.models.source import TensorInfo
    from thalweg.models.weight_map import Recipe, WeightMap


@dataclass(frozen=True, slots=True)
class BoundWeight:
    spec: WeightSpec
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Binding:
    weights: Mapping[str, BoundWeight]
    """By canonical name; every weight of the plan."""
    used: Mapping[str, TensorInfo]
    """The stored tensors they are made of, in file order."""
    skipped: Mapping[str, tuple[str, ...]]
    """Reason to names of stored tensors."""


def bind(plan: ModelPlan, weight_map: WeightMap, *, entries: Mapping[str, TensorInfo]) -> Binding:
    """Raises `CheckpointError` for missing, unknown, wrongly shaped or unreadable tensors."""
    weights = {
        spec.name: BoundWeight(spec, _choose(weight_map.recipes(spec), entries))
        for spec in plan.weights
    }
    sources = {s.name: s for bound in weights.values() for s in bound.recipe.sources}
    skipped: dict[str, list[str]] = defaultdict(list)
    unknown = []
    for name in entries:
        if name not in sources:
            reason = weight_map.skip_reason(name)
            if reason is None:
                unknown.append(name)
            else:
                skipped[reason].append(name)
    _refuse_wrong_names([name for name in sources if name not in entries], unknown)
    _refuse_wrong_types(sources, entries)
    _refuse_wrong_shapes(sources.values(), entries)
    used = {name: info for name, info in entries.items() if name in sources}
    return Binding(weights, used, {reason: tuple(names) for reason, names in skipped.items()})


def _choose(recipes: tuple[Recipe, ...], entries: Mapping[str, TensorInfo]) -> Recipe:
    """The layout the file uses: the one of which it has the largest part."""

    def present(recipe: Recipe) -> float:
        return sum(s.name in entries for s in recipe.sources) / len(recipe.sources)

    return max(recipes, key=present)


def _refuse_wrong_names(missing: list[str], unknown: list[str]) -> None:
    faults = [
        f"{len(names)} {kind}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        for kind, names in (("missing", missing), ("unknown", unknown))
        if names
    ]
    if faults:
        raise CheckpointError(
            "the checkpoint's tensors do not fit its config: " + "; ".join(faults)
        )


def _refuse_wrong_types(names: Iterable[str], entries: Mapping[str, TensorInfo]) -> None:
    for name in names:
        if (dtype_name := entries[name].dtype_name) not in READABLE:
            raise CheckpointError(
                f"tensor {name} has type {dtype_name}, which is not supported: "
                f"only {', '.join(sorted(READABLE))}"
            )


def _refuse_wrong_shapes(sources: Iterable[WeightSpec], entries: Mapping[str, TensorInfo]) -> None:
    for source in sources:
        shape = entries[source.name].shape
        if _without_ones(shape) != _without_ones(source.shape):
            raise CheckpointError(
                f"tensor {source.name} has shape {list(shape)}, "
                f"but the config needs {list(source.shape)}"
            )


def _without_ones(shape: Shape) -> Shape:
    """Without slowest dimensions of 1, which GGUF files do not tell from none."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
