"""A drafter's choice of a token: with the noise that the answer's own token will be drawn with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from thalweg.ops.sampling import Draw, Sample


def choose(logits: Tensor, draws: Sequence[Draw], sample: Sample) -> list[int | None]:
    """logits: [n, vocab_size] -> a token a row; None where the logits are no numbers, which
    kernels that sort cannot be given."""
    usable = logits.amax(-1).isfinite().tolist()
    rows = [i for i, is_usable in enumerate(usable) if is_usable]
    if not rows:
        return [None] * len(usable)
    chosen = iter(sample(logits[rows], [draws[i] for i in rows]))
    return [next(chosen) if is_usable else None for is_usable in usable]
