"""The scheduler with a model that is a hash: who computes what, and that it comes to the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scheduling import Ask, Driver, drive

if TYPE_CHECKING:
    from thalweg.scheduler.plan import StepPlan

asks = st.builds(
    Ask,
    length=st.integers(1, 20),
    n=st.sampled_from([1, 1, 1, 2, 3, 6]),
    max_tokens=st.integers(1, 8),
    arrives=st.integers(0, 12),
    scored=st.booleans(),
    stops=st.booleans(),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    leaves=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    leaves_in_flight=st.booleans(),
    cut=st.one_of(st.none(), st.none(), st.integers(1, 4)),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(asks, min_size=1, max_size=7),
    st.integers(8, 24),
    st.integers(1, 5),
    st.integers(1, 24),
    st.frozensets(st.integers(0, 25), max_size=5),
    st.booleans(),
    st.sampled_from([1, 1, 4, 40]),
    st.sampled_from([None, None, 2, 7]),
)
@example([Ask(20, n=6, scored=True)], 8, 1, 1, frozenset(), False, 1, None)
@example([Ask(7, n=3, scored=True), Ask(20, scored=True)], 8, 3, 5, frozenset({1}), True, 9, 7)
@example([Ask(20, max_tokens=8) for _ in range(6)], 15, 5, 24, frozenset(), True, 1, None)
@example([Ask(20, max_tokens=8) for _ in range(6)], 15, 5, 24, frozenset({3, 4}), True, 9, 3)
def test_everyone_gets_what_they_would_get_alone(
    requests: list[Ask],
    num_blocks: int,
    max_num_seqs: int,
    budget: int,
    fails: frozenset[int],
    reuses: bool,
    num_host_blocks: int,
    forced: int | None,
) -> None:
    if num_host_blocks < 40 and forced is not None:
        forced += max(ask.length + ask.max_tokens for ask in requests)  # else none is ever done
    driver = Driver(num_blocks, max_num_seqs, budget, reuses, num_host_blocks, forced)
    drive(driver, requests, fails)


def shares(plan: StepPlan) -> dict[str, int]:
    return {row.sample.request.id: len(row.token_ids) for row in plan.rows}


def test_an_idle_scheduler_plans_nothing() -> None:
    plan = Driver().step()
    assert plan.rows == () and plan.logits_rows == ()


def test_answers_go_on_while_a_long_prompt_is_computed() -> None:
    """M5: a token each first, and what is left goes to the prompt."""
    driver = Driver(budget=8)
    driver.add(Ask(2, max_tokens=8))
    driver.add(Ask(3, max_tokens=8))
    driver.step()
    driver.add(Ask(20))
    assert shares(driver.step()) == {"0": 1, "1": 1, "2": 6}
    assert shares(driver.step()) == {"0": 1, "1": 1, "2": 6}


def test_the_budget_is_spent_in_order_of_arrival() -> None:
    driver = Driver(budget=8)
    for length in (3, 9, 9):
        driver.add(Ask(length, max_tokens=8))
    assert shares(driver.step()) == {"0": 3, "1": 5}
    assert shares(driver.step()) == {"0": 1, "1": 4, "2": 3}
    assert shares(driver.step()) == {"0": 1, "1": 1, "2": 6}


def test_no_more_than_max_num_seqs_run() -> None:
    driver = Driver(max_num_seqs=2)
    for _ in range(3):
        driver.add(Ask(2, max_tokens=2))
    assert shares(driver.step()) == {"0": 2, "1": 2}
    assert driver.scheduler.num_running == 2 and driver.scheduler.num_waiting == 1


def test_a_newcomer_waits_rather_than_push_anyone_out() -> None:
    driver = Driver(num_blocks=6)
    driver.add(Ask(16, max_tokens=2))
    driver.step()
    driver.add(Ask(5, max_tokens=2))  # needs two blocks, and one is free
    driver.add(Ask(2, max_tokens=2))  # would fit, but came later
    assert shares(driver.step()) == {"0": 1}
    assert shares(driver.step()) == {"1": 5, "2": 2}


def test_when_memory_runs_out_the_latest_gives_way_and_comes_back() -> None:
    driver = Driver(num_blocks=5)
    for _ in range(2):
        driver.add(Ask(8, max_tokens=6))
    assert shares(driver.step()) == {"0": 8, "1": 8}
    assert shares(driver.step()) == {"0": 1}, "both need a block and none is free"
    assert driver.scheduler.num_waiting == 1
    while driver.scheduler.has_work:
        driver.step()
    driver.assert_done()


def test_the_prompt_of_many_answers_is_computed_once() -> None:
    driver = Driver(max_num_seqs=4)
    driver.add(Ask(6, n=4, max_tokens=3))
    while driver.scheduler.has_work:
        driver.step()
    driver.assert_done()
    num_decoded = sum(len(made) - 1 for made in driver.answers.values())
    assert driver.num_computed == 6 + num_decoded


def test_two_groups_of_answers_fill_every_slot() -> None:
    """While a group's first steps are reserved its members hold one slot more than they are."""
    driver = Driver(max_num_seqs=4, budget=16)
    for _ in range(2):
        driver.add(Ask(6, n=2, max_tokens=3))
    while driver.scheduler.has_work:
        driver.step()
    driver.assert_done()
    assert driver.num_computed == 12 + sum(len(made) - 1 for made in driver.answers.values())


@pytest.mark.parametrize("n", [2, 5, 20])
def test_more_answers_than_may_run_take_turns(n: int) -> None:
    driver = Driver(max_num_seqs=2)
    driver.add(Ask(6, n=n, max_tokens=3))
    driver.add(Ask(3))
    while driver.scheduler.has_work:
        driver.step()
    driver.assert_done()


def test_answers_without_room_for_a_copy_compute_the_prompt_themselves() -> None:
    driver = Driver(num_blocks=3, max_num_seqs=3)  # two blocks, and the prompt ends in the second
    driver.add(Ask(6, n=3, max_tokens=2))
    driver.step()
    assert driver.scheduler.num_running == 1 and driver.scheduler.num_waiting == 2
    while driver.scheduler.has_work:
        driver.step()
    driver.assert_done()


def test_the_copy_of_a_fork_is_planned_once() -> None:
    driver = Driver()
    driver.add(Ask(6, n=2, max_tokens=3))
    driver.step()
    assert [copy.num_rows for copy in driver.step().copies] == [2]
    assert driver.step().copies == ()


def test_a_failed_step_is_the_end_of_all_that_it_copied_to() -> None:
    """Its copies cannot be made again later: the blocks they come from are free by then."""
    driver = Driver(budget=1)
    driver.add(Ask(6, n=3, max_tokens=3))
    for _ in range(6):
        driver.step()
    assert driver.scheduler.num_running == 3
    plan = driver.step(fails=True)
    assert len(plan.rows) == 1 and len(plan.copies) == 2
    assert driver.scheduler.num_running == 0 and driver.scheduler.num_waiting == 3
    while driver.scheduler.has_work:
        assert driver.step().copies == ()
    driver.assert_done()


def test_an_answer_that_ends_at_its_first_token_leaves_the_others() -> None:
    driver = Driver()
    driver.add(Ask(5, n=3, max_tokens=1))
    driver.step()
    assert not driver.scheduler.has_work
    driver.assert_done()


def test_aborting_twice_or_an_unknown_request_is_nothing() -> None:
    driver = Driver()
    name = driver.add(Ask(5, leaves=1))
    driver.step()
    for _ in range(2):
        driver.scheduler.abort(name)
    driver.scheduler.abort("nobody")
    driver.assert_done()


def test_an_urgent_request_takes_the_place_of_a_less_urgent_one() -> None:
    driver = Driver(max_num_seqs=2)
    for priority in (1, 2, 2):
        driver.add(Ask(3, max_tokens=4, priority=priority))
    assert shares(driver.step()) == {"0": 3, "1": 3}
    driver.add(Ask(3, max_tokens=4))
    assert shares(driver.step()) == {"3": 3, "0": 1}, "the last of the least urgent gives way"
    assert shares(driver.step()) == {"3": 1, "0": 1}, "equals do not push each other out"
    while driver.scheduler.has_work:
        driver.step()
    driver.assert_done()


def test_cancelling_all_of_a_step_that_is_computed() -> None:
    driver = Driver()
    names = [driver.add(Ask(5, n=2, leaves=1)), driver.add(Ask(6, leaves=1, scored=True))]
    driver.step(leave=names)
    assert not driver.scheduler.has_work
    driver.assert_done()


def test_the_only_slot_is_taken_from_the_cache_by_who_resumes_there() -> None:
    """One slot in all, and it holds the snapshot that the preempted sample starts from again."""
    asks = [*[Ask(1, max_tokens=1)] * 6, Ask(2, max_tokens=4)]
    drive(Driver(8, max_num_seqs=1, budget=1, reuses=True, forced=4), asks)


def test_moves_wait_for_a_step_that_makes_them() -> None:
    """A plan without rows is not carried out."""
    driver = Driver(num_host_blocks=20)
    for _ in range(2):
        driver.add(Ask(5))
    driver.step()
    driver.scheduler.isolate("nobody")
    nothing = driver.scheduler.schedule()
    assert not nothing.rows and not nothing.moves
    driver.scheduler.isolate(None)
    moves = driver.step().moves
    assert [move.direction.name for move in moves] == ["OUT", "OUT", "IN", "IN"]
