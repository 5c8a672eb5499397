from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from thalweg.ops.precision import ACCUMULATE
from thalweg.ops.rms_norm.reference import after_addition

if TYPE_CHECKING:
    from thalweg.ops.rms_norm import AddRMSNorm, GatedRMSNorm, RMSNorm, RMSNormProblem


def bind(problem: RMSNormProblem) -> RMSNorm:
    weight = problem.weight.to(ACCUMULATE[problem.weight.dtype])
    scale = 1 + weight if problem.zero_centered else weight

    def rms_norm(x: Tensor) -> Tensor:
        return F.rms_norm(x.to(scale.dtype), scale.shape, scale, problem.eps).to(x.dtype)

    return rms_norm


def bind_add(problem: RMSNormProblem) -> AddRMSNorm:
    return after_addition(bind(problem))


def bind_gated(problem: RMSNormProblem) -> GatedRMSNorm:
    norm = bind(problem)

    def gated_rms_norm(x: Tensor, z: Tensor) -> Tensor:
        normed = norm(x)
        return (normed * F.silu(z.to(normed.dtype))).to(z.dtype)

    return gated_rms_norm
