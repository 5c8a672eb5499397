"""An MLP of separate ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops.linear import LinearProblem
from thalweg.ops.silu_and_mul import SiluAndMulProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from thalweg.ops.linear import Linear
    from thalweg.ops.mlp import MLP, MLPProblem
    from thalweg.ops.silu_and_mul import SiluAndMul


def composed(
    bind_linear: Callable[[LinearProblem], Linear],
    bind_activation: Callable[[SiluAndMulProblem], SiluAndMul],
) -> Callable[[MLPProblem], MLP]:
    """How to bind an MLP to these kernels."""

    def bind(problem: MLPProblem) -> MLP:
        gate_up = bind_linear(LinearProblem(problem.gate_up))
        down = bind_linear(LinearProblem(problem.down))
        activation = bind_activation(SiluAndMulProblem(problem.down.shape[1], problem.down.dtype))

        def mlp(x: Tensor) -> Tensor:
            return down(activation(gate_up(x)))

        return mlp

    return bind
