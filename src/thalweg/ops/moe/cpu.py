from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops import extension

if TYPE_CHECKING:
    from thalweg.ops.moe import MoE, MoEProblem

MOST_EXPERTS = 4096


def reject(problem: MoEProblem) -> str | None:
    if problem.router.shape[0] > MOST_EXPERTS:
        return f"more than {MOST_EXPERTS} experts"
    return extension.reason(problem.router.dtype, problem.router.device)


def bind(problem: MoEProblem) -> MoE:
    packed, hidden = extension.packed, problem.router.shape[1]
    kernel = extension.kernels().MoE(
        packed(problem.router),
        [packed(expert) for expert in problem.gate_up.unbind()],
        [packed(expert) for expert in problem.down.unbind()],
        problem.top_k,
        problem.norm_topk_prob,
    )
    if (shared := problem.shared) is not None:
        kernel.add_shared(packed(shared.gate_up), packed(shared.down), packed(shared.gate))
    return extension.over_rows(kernel, hidden, hidden)
