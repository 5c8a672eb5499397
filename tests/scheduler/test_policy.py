"""Bounded inter-token time on a machine of known speed, and what a cost model learns of it."""

from __future__ import annotations

import random

import pytest

from thalweg.scheduler.cost import CostModel, Load
from thalweg.scheduler.policy import LEAST_PROGRESS, BoundedInterToken, FirstCome, Policy

BUDGET = 512
ANSWERS = 8


def machine(load: Load) -> float:
    """Seconds: weights 40 ms, a token 1 ms, a row of logits 2 ms, a little for attention."""
    return 0.04 + 0.001 * load.num_tokens + 0.002 * load.num_seqs + 2e-8 * load.num_attended


def beside(context: int) -> Load:
    """A token for each of the running answers, and the first of a prompt's next chunk."""
    load = Load(num_seqs=ANSWERS + 1)
    for _ in range(ANSWERS):
        load = load.more(500, 1)
    return load.more(context, 1)


def only_answers(policy: Policy, num_steps: int) -> None:
    for i in range(num_steps):
        load = Load(num_seqs=ANSWERS)
        for _ in range(ANSWERS):
            load = load.more(500 + i, 1)
        policy.observe(load, machine(load))


def prompt_chunks(policy: Policy, length: int, *, noise: float = 0.0) -> list[tuple[int, float]]:
    """A prompt beside running answers: (tokens, seconds) of each of its steps."""
    rng = random.Random(0)
    done: list[tuple[int, float]] = []
    context = 0
    while context < length:
        load = beside(context)
        extra = policy.begin(load, num_answers=ANSWERS).take(context + 1, length - context - 1)
        load = load.more(context + 1, extra)
        seconds = machine(load) * rng.uniform(1 - noise, 1 + noise)
        policy.observe(load, seconds)
        done.append((1 + extra, seconds))
        context += 1 + extra
    return done


def test_first_come_fills_every_step() -> None:
    chunks = prompt_chunks(FirstCome(BUDGET), 2000)
    assert {tokens for tokens, _ in chunks[:-1]} == {BUDGET - ANSWERS}


@pytest.mark.parametrize("bound", [0.1, 0.2, 0.4])
def test_steps_come_close_to_the_bound_and_stay_below(bound: float) -> None:
    """M5: the bound holds from the first prompt on, and is used."""
    policy = BoundedInterToken(BUDGET, bound)
    only_answers(policy, 20)
    chunks = prompt_chunks(policy, 4000)
    assert max(seconds for _, seconds in chunks) <= 1.05 * bound
    used = [seconds / bound for _, seconds in chunks[len(chunks) // 2 : -1]]
    assert min(used) >= 0.9


def test_a_noisy_machine_is_bounded_on_the_whole() -> None:
    policy = BoundedInterToken(BUDGET, 0.2)
    prompt_chunks(policy, 4000, noise=0.2)
    chunks = prompt_chunks(policy, 4000, noise=0.2)
    assert max(seconds for _, seconds in chunks) <= 0.2 * 1.3
    assert sum(seconds for _, seconds in chunks) / len(chunks) >= 0.2 * 0.8


def test_long_without_prompts_it_still_knows_what_they_cost() -> None:
    policy = BoundedInterToken(BUDGET, 0.2)
    prompt_chunks(policy, 4000)
    only_answers(policy, 1000)
    assert prompt_chunks(policy, 1000)[0][1] <= 0.2 * 1.05


def test_a_bound_that_cannot_be_kept_starves_nobody() -> None:
    chunks = prompt_chunks(BoundedInterToken(BUDGET, 0.01), 400)
    later = [tokens for tokens, _ in chunks[5:-1]]
    assert set(later) == {1 + LEAST_PROGRESS}


def test_without_running_answers_there_is_no_bound() -> None:
    step = BoundedInterToken(BUDGET, 0.01).begin(Load(), num_answers=0)
    assert step.take(0, 4000) == BUDGET


def test_a_step_with_room_takes_another_prompt() -> None:
    policy = BoundedInterToken(BUDGET, 0.2)
    prompt_chunks(policy, 4000)
    step = policy.begin(beside(0), num_answers=ANSWERS)
    assert step.has_room
    step.take(0, 4000)
    assert not step.has_room


def test_the_model_finds_the_parts_of_a_pass() -> None:
    model, rng = CostModel(), random.Random(1)
    for _ in range(300):
        load = Load(num_seqs=rng.randint(1, 16)).more(rng.randint(0, 8000), rng.randint(1, 512))
        model.observe(load, machine(load))
    for tokens, context in ((1, 0), (100, 4000), (512, 8000)):
        load = Load(num_seqs=4).more(context, tokens)
        assert model.seconds(load) == pytest.approx(machine(load), rel=0.03)


def test_no_part_costs_less_than_nothing() -> None:
    model = CostModel()
    model.observe(Load(1, 1, 1), 0.5)
    model.observe(Load(512, 1, 131_000), 0.1)
    assert model.seconds(Load(10_000, 1, 10**8)) >= 0
