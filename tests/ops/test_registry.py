from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from thalweg.errors import ConfigError
from thalweg.ops.registry import Kernel, KernelSelector, Op

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
    with pytest.raises(ConfigError, match=r"kernels = 'cuda' is not available: auto, torch, ref"):
        KernelSelector("cuda")


def test_no_kernel_at_all_names_every_reason() -> None:
    double = op(("torch", small_only), ("reference", nothing))
    with pytest.raises(ConfigError, match=r"no kernel for double \(size 9\)") as refused:
        KernelSelector().bind(double, Doubling(9))
    assert "torch: size 9 is above 4; reference: not today" in str(refused.value)
