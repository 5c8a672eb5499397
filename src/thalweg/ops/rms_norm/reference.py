from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from thalweg.ops.rms_norm import AddRMSNorm, GatedRMSNorm, RMSNorm, RMSNormProblem


def bind(problem: RMSNormProblem) -> RMSNorm:
    weight = problem.weight.to(ACCUMULATE[problem.weight.dtype])
    scale = 1 + weight if problem.zero_centered else weight

    def rms_norm(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = torch.empty_like(rows)
        for t in range(len(rows)):
            row = rows[t].to(scale.dtype, copy=True)
            mean_square = (row * row).sum() / len(row)
            out[t] = row * (mean_square + problem.eps).rsqrt() * scale
        return out.view(x.shape)

    return rms_norm


def bind_add(problem: RMSNormProblem) -> AddRMSNorm:
    return after_addition(bind(problem))


def after_addition(norm: RMSNorm) -> AddRMSNorm:
    """The same norm of the residual stream once something was added to it."""

    def add_rms_norm(hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        residual = hidden + residual
        return norm(residual), residual

    return add_rms_norm


def bind_gated(problem: RMSNormProblem) -> GatedRMSNorm:
    norm = bind(problem)

    def gated_rms_norm(x: Tensor, z: Tensor) -> Tensor:
        normed = norm(x)
        rows, gates = normed.view(-1, x.shape[-1]), z.reshape(-1, x.shape[-1])
        out = torch.empty_like(gates)
        for t in range(len(rows)):
            gate = gates[t].to(rows.dtype, copy=True)
            out[t] = rows[t] * (gate * gate.sigmoid())
        return out.view(z.shape)

    return gated_rms_norm
