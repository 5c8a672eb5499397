"""Vectorised over sequences and heads; token by token along each sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from thalweg.ids import SKIP
from thalweg.ops.gated_delta_rule.reference import EPS
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.ops.gated_delta_rule import (
        DeltaGates,
        DeltaGatesProblem,
        GatedDeltaRule,
        GatedDeltaRuleProblem,
    )


def bind_gates(problem: DeltaGatesProblem) -> DeltaGates:
    wide = ACCUMULATE[problem.A_log.dtype]
    rate, dt_bias = -problem.A_log.to(wide).exp(), problem.dt_bias.to(wide)

    def delta_gates(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return rate * F.softplus(a.to(wide) + dt_bias), b.to(wide).sigmoid()

    return delta_gates


def bind(problem: GatedDeltaRuleProblem) -> GatedDeltaRule:
    group = problem.num_v_heads // problem.num_k_heads
    scale = problem.head_k_dim**-0.5

    def heads(x: Tensor, factor: float) -> Tensor:
        """Unit vectors for every value head. x: [T, H, K] -> [T, HV, K]"""
        norm = (x.square().sum(-1, keepdim=True) + EPS).rsqrt()
        return (x * (norm * factor)).repeat_interleave(group, 1)

    def gated_delta_rule(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        ssm: Tensor,
        batch: ForwardBatch,
    ) -> Tensor:
        q, k, decay = heads(q, scale), heads(k, 1.0), g.exp()
        out = torch.empty_like(v, dtype=ssm.dtype)
        # Longest first, so that the sequences still running at step i are the first few.
        lens, order = batch.cu_seqlens.diff().sort(descending=True)
        starts = batch.cu_seqlens[:-1][order]
        state = ssm[batch.state.load_slots[order]]  # [S, HV, K, V], a copy
        num_running = (
            lens > torch.arange(batch.shape.max_query_len, device=lens.device)[:, None]
        ).sum(1)
        for i, n in enumerate(num_running.tolist()):
            rows = starts[:n] + i
            s, key = state[:n], k[rows]
            s *= decay[rows][..., None, None]
            u = beta[rows][..., None] * (v[rows] - _read(s, key))
            s += key[..., :, None] * u[..., None, :]
            out[rows] = _read(s, q[rows])
            stores = batch.state.store_slots[rows]
            kept = stores != SKIP
            ssm[stores[kept]] = s[kept]
        return out

    return gated_delta_rule


def _read(state: Tensor, key: Tensor) -> Tensor:
    """state: [n, HV, K, V], key: [n, HV, K] -> [n, HV, V]"""
    return torch.matmul(key[..., None, :], state).squeeze(-2)
