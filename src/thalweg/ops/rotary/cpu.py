from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension
from thalweg.ops.rotary.frequencies import attention_factor, frequencies

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.rotary import Rotary, RotaryProblem

MOST_CHANNELS = 1024


def reject(problem: RotaryProblem) -> str | None:
    if problem.rope.rotary_dim > MOST_CHANNELS:
        return f"more than {MOST_CHANNELS} channels turn"
    return extension.reason(problem.dtype, problem.device)


def bind(problem: RotaryProblem) -> Rotary:
    turns = frequencies(problem.rope, torch.float32).contiguous()
    kernel = extension.kernels().Rotary(
        turns.data_ptr(), len(turns), attention_factor(problem.rope)
    )

    def rotary(x: Tensor, rope_positions: Tensor) -> Tensor:
        assert rope_positions.dtype == torch.int32 and rope_positions[0].is_contiguous()
        x = extension.unit_stride(x)
        out = torch.empty(x.shape)
        kernel.run(
            x.data_ptr(),
            x.stride(0),
            x.stride(1),
            x.shape[0],
            x.shape[1],
            x.shape[2],
            rope_positions.data_ptr(),
            out.data_ptr(),
        )
        return out

    return extension.made_of(rotary, kernel)
