from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from thalweg.ops import extension

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.gated_delta_rule import (
        DeltaGates,
        DeltaGatesProblem,
        GatedDeltaRule,
        GatedDeltaRuleProblem,
    )

MOST_KEYS = 512


def reject_gates(problem: DeltaGatesProblem) -> str | None:
    return extension.reason(problem.A_log.dtype, problem.A_log.device)


def bind_gates(problem: DeltaGatesProblem) -> DeltaGates:
    A_log, dt_bias = problem.A_log.contiguous(), problem.dt_bias.contiguous()
    kernel = extension.kernels().Gates(A_log.data_ptr(), dt_bias.data_ptr(), len(A_log))

    def delta_gates(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = extension.unit_stride(a.float()), extension.unit_stride(b.float())
        g, beta = torch.empty(a.shape), torch.empty(a.shape)
        kernel.run(
            a.data_ptr(),
            a.stride(0),
            b.data_ptr(),
            b.stride(0),
            a.shape[0],
            g.data_ptr(),
            beta.data_ptr(),
        )
        return g, beta

    return extension.made_of(delta_gates, kernel)


def reject(problem: GatedDeltaRuleProblem) -> str | None:
    if problem.head_k_dim > MOST_KEYS:
        return f"keys of more than {MOST_KEYS} channels"
    return extension.reason(problem.state_dtype)


def bind(problem: GatedDeltaRuleProblem) -> GatedDeltaRule:
    kernel = extension.kernels().Delta(
        problem.num_k_heads,
        problem.num_v_heads,
        problem.head_k_dim,
        problem.head_v_dim,
        problem.head_k_dim**-0.5,
    )

    def gated_delta_rule(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        ssm: Tensor,
        batch: ForwardBatch,
    ) -> Tensor:
        assert ssm.dtype == torch.float32 and ssm.is_contiguous()
        q, k, v = extension.unit_stride(q), extension.unit_stride(k), extension.unit_stride(v)
        g, beta = g.contiguous(), beta.contiguous()
        out = torch.empty(v.shape)
        kernel.run(
            q.data_ptr(),
            q.stride(0),
            q.stride(1),
            k.data_ptr(),
            k.stride(0),
            k.stride(1),
            v.data_ptr(),
            v.stride(0),
            v.stride(1),
            g.data_ptr(),
            beta.data_ptr(),
            batch.cu_seqlens.data_ptr(),
            batch.state.load_slots.data_ptr(),
            batch.state.store_slots.data_ptr(),
            batch.shape.num_seqs,
            ssm.data_ptr(),
            out.data_ptr(),
        )
        return out

    return extension.made_of(gated_delta_rule, kernel)
