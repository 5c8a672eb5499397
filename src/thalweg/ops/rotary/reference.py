from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops.rotary.frequencies import rotary_table

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.rotary import Rotary, RotaryProblem


def bind(problem: RotaryProblem) -> Rotary:
    table = rotary_table(problem)
    half = problem.rope.rotary_dim // 2

    def rotary(x: Tensor, rope_positions: Tensor) -> Tensor:
        out = x.clone()
        for t, position in enumerate(rope_positions[0].tolist()):
            cos, sin = table.cos[position], table.sin[position]
            for n in range(x.shape[1]):
                first, second = x[t, n, :half].clone(), x[t, n, half : 2 * half].clone()
                out[t, n, :half] = first * cos - second * sin
                out[t, n, half : 2 * half] = second * cos + first * sin
        return out

    return rotary
