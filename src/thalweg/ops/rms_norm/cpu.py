from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.rms_norm import AddRMSNorm, GatedRMSNorm, RMSNorm, RMSNormProblem


def reject(problem: RMSNormProblem) -> str | None:
    return extension.reason(problem.weight.dtype, problem.weight.device)


def bind(problem: RMSNormProblem) -> RMSNorm:
    norm = _kernel(problem)

    def rms_norm(x: Tensor) -> Tensor:
        out = torch.empty(x.shape)
        x = _heads(x)
        norm.run(x.data_ptr(), x.stride(0), x.stride(1), x.shape[0], x.shape[1], out.data_ptr())
        return out

    return extension.made_of(rms_norm, norm)


def bind_add(problem: RMSNormProblem) -> AddRMSNorm:
    norm = _kernel(problem)

    def add_rms_norm(hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        hidden, residual = extension.unit_stride(hidden), extension.unit_stride(residual)
        out, total = torch.empty(hidden.shape), torch.empty(hidden.shape)
        norm.run_add(
            hidden.data_ptr(),
            hidden.stride(0),
            residual.data_ptr(),
            residual.stride(0),
            hidden.shape[0],
            total.data_ptr(),
            out.data_ptr(),
        )
        return out, total

    return extension.made_of(add_rms_norm, norm)


def bind_gated(problem: RMSNormProblem) -> GatedRMSNorm:
    norm = _kernel(problem)

    def gated_rms_norm(x: Tensor, z: Tensor) -> Tensor:
        out = torch.empty(z.shape)
        x, z = _heads(x), _heads(z)
        norm.run_gated(
            x.data_ptr(),
            x.stride(0),
            x.stride(1),
            z.data_ptr(),
            z.stride(0),
            z.stride(1),
            x.shape[0],
            x.shape[1],
            out.data_ptr(),
        )
        return out

    return extension.made_of(gated_rms_norm, norm)


def _kernel(problem: RMSNormProblem) -> Any:
    weight = problem.weight.to(torch.float32).contiguous()
    scale = 1 + weight if problem.zero_centered else weight
    return extension.kernels().Norm(scale.data_ptr(), len(scale), problem.eps)


def _heads(x: Tensor) -> Tensor:
    """As [T, heads, D]."""
    x = extension.unit_stride(x)
    if x.dim() == 3:
        return x
    return x[:, None] if x.dim() == 2 else x.reshape(-1, 1, x.shape[-1])
