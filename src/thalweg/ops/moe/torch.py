from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from thalweg.ops.linear.torch import product
from thalweg.ops.precision import ACCUMULATE
from thalweg.ops.weight import dense

if TYPE_CHECKING:
    from thalweg.ops.moe import MoE, MoEProblem


def bind(problem: MoEProblem) -> MoE:
    wide = ACCUMULATE[problem.router.dtype]
    router, shared = dense(problem.router).to(wide), problem.shared
    gate_ups, downs = dense(problem.gate_up), dense(problem.down)

    def moe(x: Tensor) -> Tensor:
        probs = product(x.to(wide), router).softmax(-1)
        order = probs.sort(dim=-1, descending=True, stable=True)  # ties: the lowest id
        weights, chosen = order.values[:, : problem.top_k], order.indices[:, : problem.top_k]
        if problem.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x, dtype=wide)
        for e in chosen.unique().tolist():  # ascending
            rows, place = (chosen == e).nonzero(as_tuple=True)
            y = _mlp(gate_ups[e], downs[e], x[rows])
            out.index_add_(0, rows, weights[rows, place, None] * y)
        if shared is not None:
            gate = product(x, dense(shared.gate)).sigmoid()
            out += gate * _mlp(dense(shared.gate_up), dense(shared.down), x)
        return out.to(x.dtype)

    return moe


def _mlp(gate_up: Tensor, down: Tensor, x: Tensor) -> Tensor:
    """gate_up: [2 I, D], down: [D, I], x: [T, D] -> [T, D]"""
    gate, up = product(x, gate_up).chunk(2, -1)
    return product(F.silu(gate) * up, down)
