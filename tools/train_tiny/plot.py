"""`python -m tools.train_tiny.plot --state DIR`: the curves of a run.

Prints a table of the measures; with matplotlib installed also writes `DIR/curves.png`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SMOOTHING = 0.8


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over steps."""

    steps: list[int]
    values: list[float]

    def smoothed(self) -> Curve:
        """Exponential mean, for losses of single batches."""
        values: list[float] = []
        for value in self.values:
            values.append(
                value if not values else _SMOOTHING * values[-1] + (1 - _SMOOTHING) * value
            )
        return Curve(self.steps, values)


def read(log: Path) -> tuple[dict[str, Curve], dict[str, Curve]]:
    """Loss curves and measure curves by name. A step logged twice counts as logged last."""
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for line in log.read_text().splitlines():
        fields = json.loads(line)
        lines[fields["kind"], fields["step"]] = fields
    losses: dict[str, Curve] = {}
    measures: dict[str, Curve] = {}
    for (kind, step), fields in sorted(lines.items()):
        if kind == "loss":
            _add(losses, step, {"draft": fields["draft"], **fields["tasks"]})
        else:
            drafts = {name: fields[name] for name in ("first_draft", "second_draft", "both_drafts")}
            _add(measures, step, {**fields["accuracy"], **drafts})
    return losses, measures


def _add(curves: dict[str, Curve], step: int, values: dict[str, float]) -> None:
    for name, value in values.items():
        curve = curves.setdefault(name, Curve([], []))
        curve.steps.append(step)
        curve.values.append(value)


def table(measures: dict[str, Curve], columns: int = 10) -> str:
    """Markdown: one row a measure, percent, about `columns` steps evenly chosen."""
    steps = next(iter(measures.values())).steps
    every = max(1, -(-len(steps) // columns))
    chosen = sorted({*steps[::every], steps[-1]})
    rows = ["| step | " + " | ".join(map(str, chosen)) + " |", "|---" * (len(chosen) + 1) + "|"]
    for name, curve in measures.items():
        at = dict(zip(curve.steps, curve.values, strict=True))
        rows.append(f"| {name} | " + " | ".join(f"{100 * at[s]:.0f}" for s in chosen) + " |")
    return "\n".join(rows)


def draw_curves(losses: dict[str, Curve], measures: dict[str, Curve], path: Path) -> None:
    """Two panels: losses (log scale) and held-out measures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 6))
    left, right = figure.subplots(1, 2)
    for name, curve in losses.items():
        left.plot(curve.steps, curve.smoothed().values, label=name)
    left.set(yscale="log", xlabel="step", title="loss of written tokens")
    for name, curve in measures.items():
        right.plot(curve.steps, curve.values, label=name)
    right.set(ylim=(0, 1), xlabel="step", title="held-out, exact answers")
    for axes in (left, right):
        axes.legend(fontsize=7, ncols=2)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path.home() / ".cache" / "thalweg" / "train_tiny"
    parser.add_argument("--state", type=Path, default=default)
    state = parser.parse_args().state
    losses, measures = read(state / "log.jsonl")
    if measures:
        print(table(measures))
    if importlib.util.find_spec("matplotlib"):
        draw_curves(losses, measures, state / "curves.png")


if __name__ == "__main__":
    main()
