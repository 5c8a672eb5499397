from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.ops import extension

if TYPE_CHECKING:
    from thalweg.ops.silu_and_mul import SiluAndMul, SiluAndMulProblem


def reject(problem: SiluAndMulProblem) -> str | None:
    return extension.reason(problem.dtype)


def bind(problem: SiluAndMulProblem) -> SiluAndMul:
    width = problem.intermediate_size
    kernel = extension.kernels().SiluAndMul(width)
    return extension.over_rows(kernel, 2 * width, width)
