"""Which kernel computes what: chosen once, when a model is built, and written down.

An op is bound to a problem (weights, shapes, constants) and then called with what changes from
pass to pass. Nothing above `ops/` knows which kernel that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


class Problem(Protocol):
    """What an op is bound to: a frozen dataclass."""

    def facts(self) -> str:
        """One short line for the execution plan: shapes and dtype."""


P = TypeVar("P", bound=Problem)
P_contra = TypeVar("P_contra", bound=Problem, contravariant=True)
C_co = TypeVar("C_co", covariant=True)
C = TypeVar("C")


def accepts_all(problem: Problem) -> str | None:
    """The `reject` of a kernel that takes every problem."""
    return None


@dataclass(frozen=True, slots=True)
class Kernel(Generic[P_contra, C_co]):
    """One way to compute an op."""

    name: str
    """Its kind, one of `ORDER`."""
    bind: Callable[[P_contra], C_co]
    """Prepare for a problem (pack weights, precompute tables) and return what is called."""
    reject: Callable[[P_contra], str | None] = accepts_all
    """Why it cannot take a problem, or None."""


@dataclass(frozen=True, slots=True)
class Op(Generic[P_contra, C_co]):
    name: str
    kernels: tuple[Kernel[P_contra, C_co], ...]
    """Fastest first; the last one, the reference, takes every problem."""


ORDER = ("cpu", "onednn", "torch", "reference")
"""Kinds of kernels, fastest first. Asking for one skips all that come before it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A line of the execution plan."""

    op: str
    facts: str
    kernel: str
    rejected: tuple[str, ...] = ()
    """`kernel: reason` of every faster one that declined."""


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """What computes what in a built model; immutable."""

    choices: tuple[Choice, ...]

    def text(self) -> str:
        """A table, one line for each different choice with how often it was made."""
        counts: dict[Choice, int] = {}
        for choice in self.choices:
            counts[choice] = counts.get(choice, 0) + 1
        rows = [("op", "problem", "kernel", "count", "declined")]
        for c, n in counts.items():
            rows.append((c.op, c.facts, c.kernel, str(n), "; ".join(c.rejected)))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ("  ".join(f"{v:<{w}}" for v, w in zip(r, widths, strict=True)) for r in rows)
        return "\n".join(line.rstrip() for line in lines)


class KernelSelector:
    """Binds ops for one model and records each choice. `first` is a kind of `ORDER`, or `auto`."""

    def __init__(self, first: str = "auto") -> None:
        if first not in ("auto", *ORDER):
            raise ConfigError(f"kernels = {first!r} is not available: auto, {', '.join(ORDER)}")
        self._allowed = ORDER if first == "auto" else ORDER[ORDER.index(first) :]
        self._choices: list[Choice] = []

    def bind(self, op: Op[P, C], problem: P) -> C:
        """The fastest allowed kernel that takes the problem, ready to be called."""
        rejected: list[str] = []
        for kernel in op.kernels:
            if kernel.name not in self._allowed:
                continue
            if (reason := kernel.reject(problem)) is None:
                self._choices.append(Choice(op.name, problem.facts(), kernel.name, tuple(rejected)))
                return kernel.bind(problem)
            rejected.append(f"{kernel.name}: {reason}")
        raise ConfigError(f"no kernel for {op.name} ({problem.facts()}): {'; '.join(rejected)}")

    def fuse(self, op: Op[P, C], problem: P) -> C | None:
        """The same for an op whose problem is made of bound ones; None where no kernel does all
        of it at once."""
        for kernel in op.kernels:
            if kernel.name in self._allowed and kernel.reject(problem) is None:
                self._choices.append(Choice(op.name, problem.facts(), kernel.name))
                return kernel.bind(problem)
        return None

    def plan(self) -> ExecutionPlan:
        return ExecutionPlan(tuple(self._choices))
