from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ops.precision import ACCUMULATE
from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from thalweg.ops.moe import MoE, MoEProblem


def bind(problem: MoEProblem) -> MoE:
    wide = ACCUMULATE[problem.router.dtype]
    router, shared = dense(problem.router).to(wide), problem.shared
    gate_ups, downs = dense(problem.gate_up), dense(problem.down)

    def moe(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        for t in range(len(x)):
            row = x[t].to(wide, copy=True)
            logits = router @ row
            probs = (logits - logits.max()).exp()
            probs = probs / probs.sum()
            chosen = probs.sort(descending=True, stable=True).indices[: problem.top_k]
            total = probs[chosen].sum() if problem.norm_topk_prob else 1
            y = torch.zeros_like(row)
            for e in sorted(chosen.tolist()):
                y += probs[e] / total * _mlp(gate_ups[e], downs[e], row)
            if shared is not None:
                gate = (dense(shared.gate)[0].to(wide) * row).sum().sigmoid()
                y += gate * _mlp(dense(shared.gate_up), dense(shared.down), row)
            out[t] = y
        return out

    return moe


def _mlp(gate_up: Tensor, down: Tensor, row: Tensor) -> Tensor:
    """gate_up: [2 I, D], down: [D, I], row: [D] -> [D]"""
    gate, up = (gate_up.to(row.dtype) @ row).view(2, -1)
    return down.to(row.dtype) @ (gate * gate.sigmoid() * up)
