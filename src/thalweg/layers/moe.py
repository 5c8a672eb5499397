"""The sparse feed-forward part of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.layers.linear import matrix
from thalweg.ops import moe

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import MoEConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights


class MoE(nn.Module):
    """A router, its experts, and the shared expert if the model has one."""

    def __init__(self, config: MoEConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        shared = _shared_expert(weights, build) if config.shared_intermediate_size else None
        self.product = build.kernels.bind(
            moe.OP,
            moe.MoEProblem(
                router=matrix([weights.stored("gate.weight")], build),
                gate_up=matrix([weights.stored("experts.gate_up_proj")], build),
                down=matrix([weights.stored("experts.down_proj")], build),
                top_k=config.num_experts_per_tok,
                norm_topk_prob=config.norm_topk_prob,
                shared=shared,
            ),
        )

    def forward(self, x: Tensor, batch: ForwardBatch) -> Tensor:
        """x: [T, hidden_size] -> [T, hidden_size]"""
        return self.product(x)


def _shared_expert(weights: Weights, build: BuildContext) -> moe.SharedExpert:
    expert = weights.scope("shared_expert")
    return moe.SharedExpert(
        gate_up=matrix([expert.stored(f"{n}_proj.weight") for n in ("gate", "up")], build),
        down=matrix([expert.stored("down_proj.weight")], build),
        gate=matrix([weights.stored("shared_expert_gate.weight")], build),
    )
