from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops.rotary.frequencies import rotary_table

if TYPE_CHECKING:
    from thalweg.ops.rotary import Rotary, RotaryProblem


def bind(problem: RotaryProblem) -> Rotary:
    table = rotary_table(problem)
    dim = problem.rope.rotary_dim
    cos_cos = torch.cat([table.cos, table.cos], -1)  # [max_positions, rotary_dim]
    sin_sin = torch.cat([-table.sin, table.sin], -1)

    def rotary(x: Tensor, rope_positions: Tensor) -> Tensor:
        cos = cos_cos.index_select(0, rope_positions[0])[:, None]
        sin = sin_sin.index_select(0, rope_positions[0])[:, None]
        turned = x if x.shape[-1] == dim else x[..., :dim]
        out = torch.addcmul(turned * cos, turned.roll(dim // 2, -1), sin)
        return out if x.shape[-1] == dim else torch.cat([out, x[..., dim:]], -1)

    return rotary
