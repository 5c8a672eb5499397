"""The gate against simulated machines and texts: never slower for long, and fast where it pays."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.speculative.gate import Candidate, Gate, Verified

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Machine:
    """A pass of S sequences takes `1 + 0.1 * (S - 1)`, and with drafts `slope` more for each, or
    steps of `step` rows."""

    slope: float = 0.15
    step: int = 1
    noise: float = 0.0
    load: float = 1.0
    """Times as long, because others work there, too."""
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def seconds(self, num_seqs: int, num_drafts: int) -> float:
        rows = -(-num_drafts // self.step) * self.step
        exact = 1 + 0.1 * (num_seqs - 1) + self.slope * rows
        return self.load * exact * (1 + self.noise * self.rng.random())


@dataclass
class Run:
    """Totals, in passes without drafts that would have made as many tokens."""

    gate: Gate[int] = field(default_factory=Gate)
    spent: float = 0.0
    earned: float = 0.0

    def go(
        self,
        machine: Machine,
        accuracy: Callable[[int], float],
        *,
        num_passes: int = 1000,
        num_seqs: int = 1,
        most: int = 4,
    ) -> float:
        """`accuracy`: the chance of a draft in pass i to be right. -> speed, plain = 1, of these
        passes alone."""
        before = self.spent, self.earned
        plain = Machine(machine.slope).seconds(num_seqs, 0) * (1 + machine.noise / 2)
        for i in range(num_passes):
            asked = self.gate.choose([Candidate(key, most) for key in range(num_seqs)])
            verified = {key: self.verify(n, accuracy(i)) for key, n in enumerate(asked) if n}
            seconds = machine.seconds(num_seqs, sum(asked))
            self.gate.observe(verified, num_seqs=num_seqs, seconds=seconds)
            self.spent += seconds / plain
            self.earned += (num_seqs + sum(v.num_kept for v in verified.values())) / num_seqs
        return (self.earned - before[1]) / (self.spent - before[0])

    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def verify(self, num_drafts: int, accuracy: float) -> Verified:
        kept = 0
        while kept < num_drafts and self.rng.random() < accuracy:
            kept += 1
        return Verified(num_drafts, kept)


def fixed(machine: Machine, accuracy: float, num_drafts: int, num_seqs: int = 1) -> float:
    """The speed with always so many drafts."""
    tokens = sum(accuracy**n for n in range(num_drafts + 1))
    return tokens * machine.seconds(num_seqs, 0) / machine.seconds(num_seqs, num_seqs * num_drafts)


@pytest.mark.parametrize("num_seqs", [1, 4, 16])
@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("slope", [0.05, 0.15, 0.6])
def test_drafts_that_are_never_right_cost_next_to_nothing(
    num_seqs: int, most: int, slope: float
) -> None:
    run = Run()
    machine = Machine(slope)
    run.go(machine, lambda i: 0.0, num_passes=100, num_seqs=num_seqs, most=most)
    lost = run.spent - run.earned
    assert lost < 8
    assert run.go(machine, lambda i: 0.0, num_seqs=num_seqs, most=most) > 0.98
    record = run.gate.record
    assert record.num_drafting < 30 < record.num_held and record.num_probing > 0


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("accuracy", [1.0, 0.9, 0.7, 0.5])
def test_drafts_that_pay_are_made(accuracy: float, step: int) -> None:
    machine = Machine(0.1, step=step)
    best = max(fixed(machine, accuracy, n) for n in range(9))
    speed = Run().go(machine, lambda i: accuracy, num_passes=3000, most=8)
    assert speed > 0.9 * best
    assert speed > 1.1


def test_each_answer_has_drafts_of_its_own() -> None:
    """Two answers in the same passes, one is guessed right and one wrong."""
    gate, machine = Gate[str](), Machine(0.2)
    asked = [0, 0]
    for _ in range(400):
        asked = gate.choose([Candidate("right", 4), Candidate("wrong", 4)])
        kept = {"right": asked[0], "wrong": 0}
        found = {k: Verified(n, kept[k]) for k, n in zip(kept, asked, strict=True) if n}
        gate.observe(found, num_seqs=2, seconds=machine.seconds(2, sum(asked)))
        if any(asked):
            last = asked
    assert last[0] == 4 and last[1] <= 1


def test_drafts_that_become_right_are_found_soon() -> None:
    run, machine = Run(), Machine(0.15)
    run.go(machine, lambda i: 0.0)
    run.go(machine, lambda i: 1.0, num_passes=80)
    assert run.go(machine, lambda i: 1.0, num_passes=300) > 0.9 * fixed(machine, 1.0, 4)


def test_drafts_that_stop_to_be_right_are_ended_soon() -> None:
    run, machine = Run(), Machine(0.3)
    run.go(machine, lambda i: 1.0)
    before = run.spent - run.earned
    run.go(machine, lambda i: 0.0, num_passes=300)
    assert run.spent - run.earned - before < 10


def test_a_text_that_fools_every_estimate_loses_little() -> None:
    """Right just often enough to be tried again and again."""
    run, machine = Run(), Machine(0.5)
    assert run.go(machine, lambda i: float(i % 3 == 0), num_passes=3000, most=8) > 0.97


def test_a_machine_that_becomes_slower_is_no_reason_to_stop_for_good() -> None:
    run, fast, slow = Run(), Machine(0.1), Machine(0.1, load=2.0)
    run.go(fast, lambda i: 0.95, num_passes=500)
    run.go(slow, lambda i: 0.95, num_passes=600)
    speed = run.go(slow, lambda i: 0.95, num_passes=1000)
    assert 2 * speed > 0.85 * fixed(fast, 0.95, 4)


chances = st.floats(0, 1)


@settings(max_examples=60, deadline=None)
@given(
    accuracies=st.lists(chances, min_size=1, max_size=6),
    slope=st.floats(0, 1.5),
    step=st.sampled_from([1, 2, 4]),
    noise=st.floats(0, 0.3),
    num_seqs=st.integers(1, 9),
    most=st.integers(1, 16),
)
def test_regret_is_bounded(
    accuracies: list[float], slope: float, step: int, noise: float, num_seqs: int, most: int
) -> None:
    """Whatever the text and the machine: at most 3 % of the time, and a few passes."""
    run, machine = Run(), Machine(slope, step, noise)
    for accuracy in accuracies:
        run.go(
            machine,
            lambda i, chance=accuracy: chance,  # type: ignore[misc]  # bound now
            num_passes=200,
            num_seqs=num_seqs,
            most=most,
        )
    worst_pass = machine.slope * num_seqs * (most + 3) / (1 + 0.1 * (num_seqs - 1))
    assert run.spent - run.earned < 0.03 * run.spent + 6 + 2 * worst_pass + noise * 30


def test_passes_with_prompts_teach_no_times() -> None:
    gate = Gate[str]()
    for _ in range(50):
        assert gate.choose([Candidate("a", 4)]) == [0]  # nothing is known yet
        gate.observe({}, num_seqs=1, seconds=None)
    for _ in range(2):
        gate.observe({}, num_seqs=1, seconds=1.0)
    assert gate.choose([Candidate("a", 4)]) == [1]  # at first a few
