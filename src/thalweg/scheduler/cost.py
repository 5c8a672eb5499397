"""How long a pass takes, learnt from the passes that were. Host only: no kernel is measured apart.

seconds = w . (1, tokens, sequences, tokens attended to), with no weight below zero: a fixed part
(all weights are read once), the projections, the rows of logits, and attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MEMORY = 0.97
"""Weight of a pass relative to the next one of its kind."""
RIDGE = 1e-3
"""Keeps what was never varied at zero."""
UNITS = (1.0, 64.0, 8.0, 65536.0)
"""So that the weights are of one size."""

Vector = list[float]


@dataclass(frozen=True, slots=True)
class Load:
    """What a pass has to do, as far as it decides how long that takes."""

    num_tokens: int = 0
    num_seqs: int = 0
    num_attended: int = 0
    """Summed over the new tokens: how many tokens each looks at, itself included."""

    def more(self, start: int, num_new: int) -> Load:
        """With `num_new` more tokens of a sequence that are at `start` and after."""
        attended = num_new * start + num_new * (num_new + 1) // 2
        return replace(
            self,
            num_tokens=self.num_tokens + num_new,
            num_attended=self.num_attended + attended,
        )

    @property
    def has_prompts(self) -> bool:
        return self.num_tokens > self.num_seqs


class CostModel:
    """Passes with and without prompts are forgotten apart, so that a long time without prompts
    does not make one a surprise."""

    def __init__(self) -> None:
        self._kinds = {True: _Moments(), False: _Moments()}
        self._weights: Vector = [0.0] * len(UNITS)
        self.most_tokens = 0
        """In any pass so far. Beyond it an estimate is a guess."""

    def observe(self, load: Load, seconds: float) -> None:
        self._kinds[load.has_prompts].add(_features(load), seconds)
        self._weights = _fit(*self._kinds.values())
        self.most_tokens = max(self.most_tokens, load.num_tokens)

    def seconds(self, load: Load) -> float:
        """0 before anything was observed."""
        return sum(w * x for w, x in zip(self._weights, _features(load), strict=True))


def _features(load: Load) -> Vector:
    values = (1, load.num_tokens, load.num_seqs, load.num_attended)
    return [value / unit for value, unit in zip(values, UNITS, strict=True)]


class _Moments:
    """Sums of x x^T and of x y, fading."""

    def __init__(self) -> None:
        self.xx = [[0.0] * len(UNITS) for _ in UNITS]
        self.xy = [0.0] * len(UNITS)

    def add(self, x: Vector, y: float) -> None:
        for i, x_i in enumerate(x):
            self.xy[i] = MEMORY * self.xy[i] + x_i * y
            for j, x_j in enumerate(x):
                self.xx[i][j] = MEMORY * self.xx[i][j] + x_i * x_j


def _fit(*parts: _Moments) -> Vector:
    """Least squares over the features left when those with weights below zero are taken out."""
    used = list(range(len(UNITS)))
    while True:
        xx = [[sum(p.xx[i][j] for p in parts) + RIDGE * (i == j) for j in used] for i in used]
        xy = [sum(p.xy[i] for p in parts) for i in used]
        found = dict(zip(used, _solve(xx, xy), strict=True))
        worst = min(used, key=found.__getitem__)
        if found[worst] >= 0:
            return [found.get(i, 0.0) for i in range(len(UNITS))]
        used.remove(worst)


def _solve(a: list[Vector], b: Vector) -> Vector:
    """a x = b by elimination; a is symmetric and positive definite."""
    rows = [[*row, value] for row, value in zip(a, b, strict=True)]
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            row[i:] = [x - factor * y for x, y in zip(row[i:], pivot[i:], strict=True)]
    x: Vector = []
    for i in range(len(rows) - 1, -1, -1):
        known = sum(c * v for c, v in zip(rows[i][i + 1 :], x, strict=False))
        x.insert(0, (rows[i][-1] - known) / rows[i][i])
    return x
