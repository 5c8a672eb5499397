"""M3: whoever gives up its memory, to the host tier or for good, gets what it gets undisturbed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from serving import PassFailed, Result, Serving, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mixture import Mixture
    from thalweg.scheduler.request import Request

    Mixtures = Callable[[str], Mixture]

ROOMY = Sizes()
WITH_TIER = Sizes(num_host_blocks=300, num_host_slots=65)
SMALL_TIER = Sizes(num_host_blocks=12, num_host_slots=4)
TIGHT = Sizes(24, 7, 6, 65, num_host_blocks=20, num_host_slots=4)


def short(small: Mixture) -> list[Request]:
    """Those of the requests that the reference kernels answer quickly."""
    return [request for request in small.requests if len(request.prompt) <= 33]


def run_forced(
    serving: Serving, requests: list[Request], every: int, failures: frozenset[int] = frozenset()
) -> None:
    serving.runner.failing.fail_at = set(failures)
    for request in requests:
        serving.engine.add_request(request)
    while serving.engine.has_work:
        with suppress(PassFailed):
            serving.step()
        if serving.num_steps % every == 0:
            serving.preempt_all()
    serving.assert_empty()


@pytest.mark.parametrize("sizes", [ROOMY, WITH_TIER, SMALL_TIER, TIGHT])
def test_forced_every_7_steps(mixture: Mixtures, sizes: Sizes) -> None:
    small = mixture("small-text")
    serving = small.serving(sizes)
    run_forced(serving, short(small), 7)
    for request in short(small):
        assert Result.of(serving.outputs[request.id]) == small.alone[request.id]
    stats = serving.engine.stats()
    assert stats.num_preemptions > 10
    assert (stats.num_parkings > 0) == (sizes.num_host_blocks > 1)


def test_the_host_tier_saves_computing_again(mixture: Mixtures) -> None:
    small = mixture("small-text")
    computed = {}
    for sizes in (ROOMY, WITH_TIER):
        serving = small.serving(sizes)
        run_forced(serving, short(small), 3)
        computed[sizes] = serving.engine.stats().num_computed_tokens
    undisturbed = small.serving(ROOMY)
    undisturbed.run(short(small))
    least = undisturbed.engine.stats().num_computed_tokens
    assert computed[WITH_TIER] == least < computed[ROOMY]


def test_what_a_failed_pass_should_have_moved_is_computed_again(mixture: Mixtures) -> None:
    """A pass that fails may not have made its moves: nothing it moved counts."""
    small = mixture("small-text")
    for sizes in (WITH_TIER, TIGHT):
        serving = small.serving(sizes)
        run_forced(serving, short(small), 2, failures=frozenset({2, 3, 5, 8, 9, 13}))
        for request in short(small):
            assert Result.of(serving.outputs[request.id]) == small.alone[request.id]


def test_cancelling_what_is_parked(mixture: Mixtures) -> None:
    small = mixture("small-text")
    serving = small.serving(Sizes(max_num_seqs=4, num_host_blocks=300, num_host_slots=65))
    for request in small.requests[:8]:
        serving.engine.add_request(request)
    serving.step()
    serving.preempt_all()
    assert serving.tier.blocks.num_used > 0
    for request in small.requests[:8]:
        serving.engine.cancel(request.id)
    assert serving.tier.blocks.num_used == serving.tier.slots.num_used == 0
    serving.assert_empty()


def test_memory_for_two_shared_by_six_with_a_tier_for_four(mixture: Mixtures) -> None:
    small = mixture("small-text")
    sizes = Sizes(13, 7, 6, num_host_blocks=25, num_host_slots=5)
    serving = small.serving(sizes)
    requests = small.requests[:6]
    results = serving.run(requests)
    assert results == {request.id: small.alone[request.id] for request in requests}
