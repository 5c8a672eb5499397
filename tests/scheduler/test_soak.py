"""M8, M11: thousands of random requests, many of them aborted or failing, leave nothing behind and
each ends once."""

from __future__ import annotations

import random

import pytest

from scheduling import Ask, Driver


def random_ask(rng: random.Random) -> Ask:
    return Ask(
        length=rng.randint(1, 30),
        n=rng.choice([1, 1, 1, 2, 4]),
        max_tokens=rng.randint(1, 8),
        scored=rng.random() < 0.2,
        stops=rng.random() < 0.5,
        priority=rng.choice([0, 0, 0, 0, 1, -1]),
        cut=rng.choice([None, None, None, 2]),
        leaves=rng.choice([None, None, 0]),
    )


def soak(num_requests: int, *, num_blocks: int, most_waiting: int, num_host_blocks: int) -> None:
    rng = random.Random(num_requests)
    driver = Driver(num_blocks, 12, 48, True, num_host_blocks, forced=41)
    restless: set[str] = set()
    while len(driver.requests) < num_requests or driver.scheduler.has_work:
        while len(driver.requests) < num_requests and driver.scheduler.num_waiting < most_waiting:
            ask = random_ask(rng)
            name = driver.add(ask)
            if ask.leaves is not None:
                restless.add(name)
        going = [name for name in sorted(restless) if rng.random() < 0.1]
        restless -= {*going}
        half = len(going) // 2
        for name in going[:half]:
            driver.abort(name)
        driver.step(fails=rng.random() < 0.02, leave=going[half:])
    driver.assert_done()
    ended = {(name, i) for name, ask in driver.asks.items() for i in range(ask.n)}
    assert driver.ended == ended


@pytest.mark.parametrize("num_host_blocks", [1, 30])
def test_500_random_requests_with_aborts(num_host_blocks: int) -> None:
    soak(500, num_blocks=60, most_waiting=20, num_host_blocks=num_host_blocks)


@pytest.mark.slow
def test_10000_random_requests_with_aborts() -> None:
    soak(10_000, num_blocks=60, most_waiting=20, num_host_blocks=30)


@pytest.mark.slow
def test_300_at_once_on_memory_for_12() -> None:
    soak(3000, num_blocks=50, most_waiting=300, num_host_blocks=1)
