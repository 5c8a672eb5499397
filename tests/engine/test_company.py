"""N13: random company. Requests join, leave and fail at random steps, in random amounts of memory;
whoever stays gets what they get alone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from serving import PassFailed, Result, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mixture import Mixture

SHORT = 18

sizes = st.builds(
    Sizes,
    num_blocks=st.integers(5, 40),
    num_slots=st.just(10),
    max_num_seqs=st.integers(1, 9),
    max_num_batched_tokens=st.sampled_from([1, 2, 7, 16, 33, 64, 512]),
    num_host_blocks=st.sampled_from([1, 1, 6, 40]),
    num_host_slots=st.just(10),
)


company = given(
    sizes,
    st.lists(st.integers(0, 30), min_size=12, max_size=12),
    st.dictionaries(st.integers(0, 11), st.integers(0, 30), max_size=4),
    st.sets(st.integers(1, 30), max_size=4),
)
fixture_is_constant = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=8, deadline=None, suppress_health_check=fixture_is_constant)
@company
@example(Sizes(5, 10, 9, 512), [0] * 12, {}, set())
def test_random_company_changes_nothing(
    mixture: Callable[[str], Mixture],
    sizes: Sizes,
    arrivals: list[int],
    departures: dict[int, int],
    failures: set[int],
) -> None:
    check_company(mixture, sizes, arrivals, departures, failures)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=fixture_is_constant)
@company
def test_much_random_company_changes_nothing(
    mixture: Callable[[str], Mixture],
    sizes: Sizes,
    arrivals: list[int],
    departures: dict[int, int],
    failures: set[int],
) -> None:
    check_company(mixture, sizes, arrivals, departures, failures)


def check_company(
    mixture: Callable[[str], Mixture],
    sizes: Sizes,
    arrivals: list[int],
    departures: dict[int, int],
    failures: set[int],
) -> None:
    small = mixture("small-text")
    requests = [request for request in small.requests if len(request.prompt) < SHORT]
    assert len(requests) == len(arrivals)
    serving = small.serving(sizes)
    serving.runner.failing.fail_at = failures
    gone: set[str] = set()
    for step in range(100_000):
        for i, request in enumerate(requests):
            if arrivals[i] == step:
                serving.engine.add_request(request)
            leaves = max(departures.get(i, -1), arrivals[i])
            if i in departures and leaves == step and request.id not in serving.outputs:
                serving.engine.cancel(request.id)
                gone.add(request.id)
        if step > 30 and not serving.engine.has_work:
            break
        with suppress(PassFailed):
            serving.step()
    serving.assert_empty()
    assert {*serving.outputs} | gone == {request.id for request in requests}
    for request_id, output in serving.outputs.items():
        assert Result.of(output) == small.alone[request_id]
