"""How long passes without drafts take, and how much longer those with drafts."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict, deque
from statistics import median

NUM_REMEMBERED = 3
"""Passes of a kind, of which the median counts."""
LEAST_REMEMBERED = 2
"""Passes without drafts before any with."""
STALE = 64
"""Passes after which one without drafts is measured again."""
FORGOTTEN = 512
"""Passes after which what drafts cost is looked at anew."""


class PassCost:
    """Of passes that compute answers alone. Counts above 8 are kept apart by their first bits."""

    def __init__(self) -> None:
        self._num_passes = 0
        self._plain: dict[int, deque[float]] = {}
        self._measured: dict[int, int] = {}
        self._ratios: defaultdict[int, dict[int, deque[tuple[int, float]]]] = defaultdict(dict)

    def observe(self, num_seqs: int, num_drafts: int, seconds: float) -> None:
        self._num_passes += 1
        seqs = _bucket(num_seqs)
        if not num_drafts:
            self._plain.setdefault(seqs, deque(maxlen=NUM_REMEMBERED)).append(seconds)
            self._measured[seqs] = self._num_passes
        elif (plain := self.plain(num_seqs)) is not None:
            place = _bucket(num_seqs + num_drafts)
            known = self._ratios[seqs].setdefault(place, deque(maxlen=NUM_REMEMBERED))
            known.append((self._num_passes, seconds / plain))

    def plain(self, num_seqs: int) -> float | None:
        """Seconds of a pass without drafts; None where none was measured."""
        known = self._plain.get(_bucket(num_seqs))
        return median(known) if known else None

    def is_stale(self, num_seqs: int) -> bool:
        """Whether `plain` should be measured now."""
        known = self._plain.get(_bucket(num_seqs), ())
        measured = self._measured.get(_bucket(num_seqs), 0)
        return len(known) < LEAST_REMEMBERED or self._num_passes - measured >= STALE

    def ratios(self, num_seqs: int, most: int) -> list[float]:
        """How many times as long as without drafts a pass takes with 0, 1, ... drafts in all: as
        measured, between two measured ones in proportion, beyond them all no more, so that it is
        tried. At most `most`, and twice as many as were tried: the first trial is a small one."""
        seqs = _bucket(num_seqs)
        oldest = self._num_passes - FORGOTTEN
        points = [(num_seqs, 1.0)]
        for place, known in sorted(self._ratios[seqs].items()):
            fresh = [ratio for when, ratio in known if when >= oldest]
            if fresh and place > points[-1][0]:
                points.append((place, max(points[-1][1], median(fresh))))
        most = min(most, max(1, num_seqs // 4, 2 * (points[-1][0] - num_seqs)))
        return [_between(points, num_seqs + num_drafts) for num_drafts in range(most + 1)]

    def ratio(self, num_seqs: int, num_drafts: int) -> float:
        """The same, of what was just observed. One or two long passes may be the machine's fault:
        they count as twice as long at most."""
        known = self._ratios[_bucket(num_seqs)][_bucket(num_seqs + num_drafts)]
        usual = median(ratio for _, ratio in known)
        return usual if len(known) == NUM_REMEMBERED else min(usual, 2.0)


def _bucket(count: int) -> int:
    """The count with all but its first four bits cleared."""
    shift = max(0, count.bit_length() - 4)
    return count >> shift << shift


def _between(points: list[tuple[int, float]], x: int) -> float:
    """The line through the points at x, flat after the last one."""
    i = bisect(points, (x, float("inf")))
    if i == len(points):
        return points[-1][1]
    if i == 0:
        return points[0][1]
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
