from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from thalweg.errors import ConfigError
from thalweg.ops import (
    causal_conv1d,
    embedding,
    gated_delta_rule,
    linear,
    mlp,
    moe,
    paged_attention,
    rms_norm,
    rotary,
    sampling,
    silu_and_mul,
)
from thalweg.ops.registry import ORDER, Kernel, KernelSelector, Op, accepts_all

OPS: tuple[Op[Any, Any], ...] = (
    causal_conv1d.OP,
    embedding.OP,
    gated_delta_rule.GATES_OP,
    gated_delta_rule.OP,
    linear.OP,
    mlp.OP,
    moe.OP,
    paged_attention.OP,
    rms_norm.ADD_OP,
    rms_norm.GATED_OP,
    rms_norm.OP,
    rotary.OP,
    sampling.LOGPROBS_OP,
    sampling.OP,
    silu_and_mul.OP,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Doubling:
    size: int

    def facts(self) -> str:
        return f"size {self.size}"


def op(*kernels: tuple[str, Callable[[Doubling], str | None]]) -> Op[Doubling, str]:
    def bound(name: str) -> Callable[[Doubling], str]:
        return lambda problem: f"{name} for {problem.size}"

    return Op("double", tuple(Kernel(name, bound(name), reject) for name, reject in kernels))


def takes_all(problem: Doubling) -> str | None:
    return None


def small_only(problem: Doubling) -> str | None:
    return None if problem.size <= 4 else f"size {problem.size} is above 4"


def nothing(problem: Doubling) -> str | None:
    return "not today"


def test_the_first_kernel_without_a_reason_wins() -> None:
    selector = KernelSelector()
    double = op(("torch", small_only), ("reference", takes_all))
    assert selector.bind(double, Doubling(4)) == "torch for 4"
    assert selector.bind(double, Doubling(5)) == "reference for 5"


def test_reasons_are_recorded_and_printed() -> None:
    selector = KernelSelector()
    double = op(("torch", small_only), ("reference", takes_all))
    for size in (5, 4, 5):
        selector.bind(double, Doubling(size))
    first, second, third = selector.plan().choices
    assert first == third and first.rejected == ("torch: size 5 is above 4",)
    assert (second.kernel, second.rejected) == ("torch", ())
    lines = selector.plan().text().splitlines()
    assert lines[0].split() == ["op", "problem", "kernel", "count", "declined"]
    assert len(lines) == 3, "one line for each different choice"
    assert "reference  2      torch: size 5 is above 4" in lines[1]
    assert lines[1].index("reference") == lines[0].index("kernel")


def test_a_plan_does_not_change_afterwards() -> None:
    selector = KernelSelector()
    double = op(("reference", takes_all))
    selector.bind(double, Doubling(1))
    plan = selector.plan()
    selector.bind(double, Doubling(2))
    assert len(plan.choices) == 1 and len(selector.plan().choices) == 2


def test_asking_for_the_reference_skips_faster_kinds() -> None:
    double = op(("torch", takes_all), ("reference", takes_all))
    assert KernelSelector("torch").bind(double, Doubling(1)) == "torch for 1"
    selector = KernelSelector("reference")
    assert selector.bind(double, Doubling(1)) == "reference for 1"
    assert selector.plan().choices[0].rejected == (), "skipped is not declined"


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"kernels = 'cuda' is not available: auto, ") as refused:
        KernelSelector("cuda")
    assert all(kind in str(refused.value) for kind in ORDER)


def test_no_kernel_at_all_names_every_reason() -> None:
    double = op(("torch", small_only), ("reference", nothing))
    with pytest.raises(ConfigError, match=r"no kernel for double \(size 9\)") as refused:
        KernelSelector().bind(double, Doubling(9))
    assert "torch: size 9 is above 4; reference: not today" in str(refused.value)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_ends_with_a_reference_that_takes_everything(op: Op[Any, Any]) -> None:
    *faster, last = op.kernels
    assert last.name == "reference" and last.reject is accepts_all
    assert [ORDER.index(kernel.name) for kernel in op.kernels] == sorted(
        ORDER.index(kernel.name) for kernel in op.kernels
    ), "fastest first"
    assert len({kernel.name for kernel in faster}) == len(faster)
