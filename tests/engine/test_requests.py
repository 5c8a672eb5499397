"""What may be asked of an engine beside tokens: urgency, time, a place in the queue, an end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from harness import SMALL, tiny
from serving import Result, Serving, Sizes, make_request
from thalweg import LLM
from thalweg.config import RequestOptions, SamplingParams
from thalweg.errors import QueueFull, RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def serving(small_tokenizer: Tokenizer, clock: Clock) -> Serving:
    sizes = Sizes(max_num_seqs=2)
    return Serving(tiny(SMALL), small_tokenizer, sizes, clock=clock, max_num_waiting=3)


def asked(serving: Serving, name: str, max_tokens: int = 6, **options: Any) -> Request:
    params = SamplingParams(seed=int(name), max_tokens=max_tokens, ignore_eos=True, logprobs=0)
    request = make_request(name, [3, 5, 7 + int(name)], params, serving)
    return replace(request, options=RequestOptions(**options))


def test_time_is_over_while_it_runs_and_while_it_waits(serving: Serving, clock: Clock) -> None:
    requests = [asked(serving, str(i), timeout=(5.0, None, 4.0)[i]) for i in range(3)]
    for request in requests:
        serving.engine.add_request(request)
    serving.step()
    clock.now += 4.5
    late = serving.step()
    assert [(d.request_id, d.finish_reason) for d in late.deltas if not d.tokens] == [
        ("2", "timeout")
    ]
    assert serving.outputs["2"].outputs[0].token_ids == ()
    clock.now += 0.5
    serving.step()
    assert len(serving.outputs["0"].outputs[0].token_ids) == 1
    assert serving.outputs["0"].outputs[0].finish_reason == "timeout"
    while serving.engine.has_work:
        serving.step()
    alone = Serving(tiny(SMALL), serving.tokenizer)
    assert Result.of(serving.outputs["1"]) == alone.run([requests[1]])["1"]
    serving.assert_empty()


def test_a_pass_that_fails_loses_nobody_whose_time_is_over(serving: Serving, clock: Clock) -> None:
    for request in (asked(serving, "1", timeout=1.0), asked(serving, "2")):
        serving.engine.add_request(request)
    serving.step()
    clock.now += 1
    serving.runner.failing.fail_at = {2}
    serving.run_through_failures([])
    assert serving.outputs["1"].outputs[0].finish_reason == "timeout"
    assert serving.outputs["2"].outputs[0].finish_reason == "length"
    serving.assert_empty()


def test_all_answers_of_a_late_request_end(serving: Serving, clock: Clock) -> None:
    request = asked(serving, "1", timeout=1.0)
    request = replace(request, params=replace(request.params, n=3))
    serving.engine.add_request(request)
    serving.step()
    clock.now += 1
    assert len(serving.step().deltas) == 3
    assert {each.finish_reason for each in serving.outputs["1"].outputs} == {"timeout"}
    serving.assert_empty()


def test_a_full_queue_refuses_and_takes_again(serving: Serving) -> None:
    for i in range(3):
        serving.engine.add_request(asked(serving, str(i)))
    assert not serving.engine.has_room
    with pytest.raises(QueueFull, match="3 requests are waiting"):
        serving.engine.add_request(asked(serving, "3"))
    serving.step()  # two of them run
    serving.engine.add_request(asked(serving, "3"))
    serving.engine.cancel("3")
    while serving.engine.has_work:
        serving.step()
    assert sorted(serving.outputs) == ["0", "1", "2"]
    serving.assert_empty()


def test_an_id_is_used_once_at_a_time(serving: Serving) -> None:
    serving.engine.add_request(asked(serving, "1"))
    with pytest.raises(RequestError, match="'1' is in use"):
        serving.engine.add_request(asked(serving, "1"))
    serving.engine.cancel("1")
    with pytest.raises(KeyError):
        serving.engine.cancel("1")
    serving.engine.add_request(asked(serving, "1"))


def test_the_urgent_are_answered_first_and_the_others_all_the_same(serving: Serving) -> None:
    requests = [asked(serving, str(i), priority=int(i < 2)) for i in range(3)]
    serving.engine.add_request(requests[0])
    serving.engine.add_request(requests[1])
    serving.step()
    serving.engine.add_request(requests[2])
    order: list[str] = []
    while serving.engine.has_work:
        order += [output.request_id for output in serving.step().finished]
    assert order.index("2") < order.index("1"), "1 gave way when 2 came"
    for request in requests:
        alone = Serving(tiny(SMALL), serving.tokenizer).run([request])
        assert Result.of(serving.outputs[request.id]) == alone[request.id]


def test_prompts_of_different_salts_share_nothing(serving: Serving) -> None:
    """S18"""
    prompt = list(range(3, 25)) + list(range(3, 25))

    def cached(name: str, salt: str) -> int:
        request = make_request(name, prompt, SamplingParams(max_tokens=1, seed=0), serving)
        serving.engine.add_request(replace(request, options=RequestOptions(cache_salt=salt)))
        while serving.engine.has_work:
            serving.step()
        return serving.outputs[name].num_cached_tokens

    assert cached("1", "") == 0
    assert cached("2", "a") == 0
    assert cached("3", "a") == cached("4", "") == 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 1.5}, "priority = 1.5 is not allowed: an integer"),
        ({"priority": True}, "priority = True is not allowed"),
        ({"priority": 10**7}, "priority = 10000000 is not allowed"),
        ({"timeout": 0}, "timeout = 0 is not allowed: seconds > 0"),
        ({"timeout": float("nan")}, "timeout = nan is not allowed"),
        ({"timeout": "1"}, "timeout = '1' is not allowed"),
        ({"cache_salt": 3}, "cache_salt = 3 is not allowed: a string"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RequestOptions(**options)


def test_the_library_keeps_to_the_queue_and_passes_options_on(tiny_llm_dir: Path) -> None:
    with LLM(tiny_llm_dir, max_num_waiting=2, max_num_seqs=2, max_inter_token_ms=50) as llm:
        params = SamplingParams(max_tokens=3, temperature=0)
        outputs = llm.generate([[i, i + 1] for i in range(1, 12)], params)
        assert [output.prompt_token_ids[0] for output in outputs] == list(range(1, 12))
        prompt = list(range(1, 40))
        llm.generate(prompt, params, request_options=RequestOptions(cache_salt="x"))
        assert llm.generate(prompt, params)[0].num_cached_tokens == 0
