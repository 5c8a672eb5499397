from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops import extension

if TYPE_CHECKING:
    from thalweg.ops.mlp import MLP, MLPProblem


def reject(problem: MLPProblem) -> str | None:
    return extension.reason(problem.gate_up.dtype, problem.gate_up.device)


def bind(problem: MLPProblem) -> MLP:
    num_in, width = problem.gate_up.shape[1], problem.down.shape[0]
    kernel = extension.kernels().MLP(
        extension.packed(problem.gate_up), extension.packed(problem.down)
    )
    return extension.over_rows(kernel, num_in, width)
