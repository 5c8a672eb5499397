from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from thalweg.ids import SKIP
from thalweg.ops.precision import ACCUMULATE

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.ops.gated_delta_rule import (
        DeltaGates,
        DeltaGatesProblem,
        GatedDeltaRule,
        GatedDeltaRuleProblem,
    )

EPS = 1e-6
FLUSH = 2.0**-100


def bind_gates(problem: DeltaGatesProblem) -> DeltaGates:
    wide = ACCUMULATE[problem.A_log.dtype]
    rate, dt_bias = -problem.A_log.to(wide).exp(), problem.dt_bias.to(wide)

    def delta_gates(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        g, beta = torch.empty_like(a, dtype=wide), torch.empty_like(b, dtype=wide)
        for t in range(len(a)):
            g[t] = rate * F.softplus(a[t].to(wide, copy=True) + dt_bias)
            beta[t] = b[t].to(wide, copy=True).sigmoid()
        return g, beta

    return delta_gates


def bind(problem: GatedDeltaRuleProblem) -> GatedDeltaRule:
    group = problem.num_v_heads // problem.num_k_heads
    scale = problem.head_k_dim**-0.5

    def gated_delta_rule(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        ssm: Tensor,
        batch: ForwardBatch,
    ) -> Tensor:
        out = torch.empty_like(v, dtype=ssm.dtype)
        load_slots, store_slots = batch.state.load_slots.tolist(), batch.state.store_slots.tolist()
        for slot, (bos, eos) in zip(load_slots, pairwise(batch.cu_seqlens.tolist()), strict=True):
            state = ssm[slot].clone()  # [HV, K, V]
            for t in range(bos, eos):
                for h in range(problem.num_v_heads):
                    key = unit(k[t, h // group])
                    query = unit(q[t, h // group]) * scale
                    s = state[h] * g[t, h].exp()
                    u = beta[t, h] * (v[t, h] - key @ s)
                    s = s + key[:, None] * u[None, :]
                    state[h] = torch.where(s.abs() < FLUSH, 0, s)
                    out[t, h] = query @ state[h]
                if (store := store_slots[t]) != SKIP:
                    ssm[store] = state
        return out

    return gated_delta_rule


def unit(x: Tensor) -> Tensor:
    """x / |x|, and 0 for 0. x: [K]"""
    x = x.clone()
    return x * ((x * x).sum() + EPS).rsqrt()
