"""Records of requests and counters of the engine: every number can be counted by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import SMALL, tiny
from serving import Serving, Sizes, make_request
from thalweg.config import SamplingParams
from thalweg.scheduler.reuse import ReusePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.text import Tokenizer

BLOCK = 4


class Clock:
    """A second for each look at it."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def serving(tokenizer: Tokenizer, sizes: Sizes | None = None) -> Serving:
    policy = ReusePolicy(snapshot_interval=BLOCK)
    model = tiny(SMALL, block_size=BLOCK)
    return Serving(model, tokenizer, sizes, policy=policy, clock=Clock())


def ask(serving: Serving, name: str, prompt: Sequence[int], *, max_tokens: int, n: int = 1) -> None:
    params = SamplingParams(seed=1, n=n, max_tokens=max_tokens, ignore_eos=True)
    serving.engine.add_request(make_request(name, prompt, params, serving))


def finish(serving: Serving) -> None:
    while serving.engine.has_work:
        serving.step()


def test_a_request_s_record(small_tokenizer: Tokenizer) -> None:
    one = serving(small_tokenizer)
    ask(one, "cold", range(10), max_tokens=4)
    finish(one)
    ask(one, "warm", range(10), max_tokens=4, n=2)
    finish(one)
    cold, warm = one.outputs["cold"], one.outputs["warm"]
    assert (cold.num_cached_tokens, cold.num_computed_tokens) == (0, 10 + 3)
    assert (warm.num_cached_tokens, warm.num_computed_tokens) == (8, 2 + 2 * 3)
    assert cold.num_preemptions == 0
    assert [len(gaps) for gaps in warm.timings.inter_token] == [3, 3]
    for times in (cold.timings, warm.timings):
        assert times.queue > 0 and times.first_token == times.queue + times.prompt
        for gaps in times.inter_token:
            assert sum(gaps) == times.generation


def test_the_engine_s_counters(small_tokenizer: Tokenizer) -> None:
    one = serving(small_tokenizer)
    ask(one, "a", range(10), max_tokens=4)
    finish(one)
    ask(one, "b", range(10), max_tokens=4, n=2)
    one.step()
    ask(one, "c", range(3), max_tokens=9)
    during = one.engine.stats()
    assert (during.num_running, during.num_waiting) == (2, 1)
    assert during.blocks.num_used > during.blocks.num_cached > 0
    one.engine.cancel("c")
    finish(one)
    stats = one.engine.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_steps == 4 + 4 and stats.num_failed_steps == 0
    assert stats.num_computed_tokens == 13 + 2 + 2 * 3
    assert stats.num_generated_tokens == 4 + 8
    assert (stats.num_prompt_tokens, stats.num_cached_tokens) == (23, 8)
    assert stats.hit_rate == pytest.approx(8 / 23)
    assert stats.num_finished == {"stop": 0, "length": 3, "abort": 1, "timeout": 0}
    assert sum(stats.step_seqs.counts) == sum(stats.step_seconds.counts) == 8
    assert stats.step_tokens.total == stats.num_computed_tokens
    assert sum(stats.first_token_seconds.counts) == 2, "the cancelled one had none"
    assert sum(stats.inter_token_seconds.counts) == 3 + 2 * 3
    assert stats.blocks.num_used == stats.blocks.num_cached
    assert stats.slots.num_used <= stats.slots.num_cached
    one.assert_empty()


def test_preemptions_are_counted(small_tokenizer: Tokenizer) -> None:
    one = serving(small_tokenizer, Sizes(num_blocks=7, num_slots=9, max_num_seqs=4))
    for i in range(3):
        ask(one, str(i), range(i, i + 7), max_tokens=9)
    finish(one)
    per_request = [output.num_preemptions for output in one.outputs.values()]
    assert sum(per_request) == one.engine.stats().num_preemptions > 0
    assert one.outputs["0"].num_preemptions == 0, "the first one never gives way"
