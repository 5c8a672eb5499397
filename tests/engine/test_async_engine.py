"""`AsyncEngine`: the same answers, whoever comes, goes, fails or reads slowly meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness import tiny
from mixture import TEXT_MODELS
from serving import PassFailed, Result, Serving, Sizes, make_request
from thalweg.config import SamplingParams
from thalweg.engine.async_engine import AsyncEngine
from thalweg.errors import EngineClosed, QueueFull, RequestError, RequestFailed
from thalweg.ops.registry import KernelSelector
from thalweg.runner.sampler import LogitsSource, Sampler

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from thalweg.scheduler.plan import StepPlan, StepResult
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)


@pytest.fixture
def serving(small_tokenizer: Tokenizer) -> Serving:
    return Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def requests(serving: Serving) -> list[Request]:
    params = SamplingParams(seed=3, max_tokens=9, logprobs=2, n=2)
    return [make_request(str(i), range(i + 3, 2 * i + 30), params, serving) for i in range(8)]


def test_answers_are_those_of_the_engine_alone(
    serving: Serving, small_tokenizer: Tokenizer
) -> None:
    alone = Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer)
    expected = alone.run(requests(alone))

    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            streams = [engine.submit(request) for request in requests(serving)]
            outputs = await asyncio.gather(*(stream.collect() for stream in streams))
        assert {output.request_id: Result.of(output) for output in outputs} == expected

    run(work())
    serving.assert_empty()


def test_pieces_joined_are_the_whole_however_slow_the_reader(serving: Serving) -> None:
    async def read(request: Request, engine: AsyncEngine, pauses: int) -> None:
        texts, tokens = {0: "", 1: ""}, {0: (), 1: ()}
        reasons: list[object] = []
        async with engine.submit(request) as stream:
            async for delta in stream:
                texts[delta.index] += delta.text
                tokens[delta.index] += delta.tokens  # type: ignore[assignment]  # a default's type
                if delta.finish_reason is not None:
                    reasons.append(delta.finish_reason)
                for _ in range(pauses):
                    await asyncio.sleep(0)
            assert stream.output is not None
            for answer in stream.output.outputs:
                assert (texts[answer.index], tokens[answer.index]) == (answer.text, answer.tokens)
            assert len(reasons) == 2

    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            await asyncio.gather(
                *(read(each, engine, 50 * i) for i, each in enumerate(requests(serving)))
            )

    run(work())


def test_a_consumer_that_leaves_frees_its_memory_and_disturbs_nobody(
    serving: Serving, small_tokenizer: Tokenizer
) -> None:
    alone = Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer)
    stays = make_request("stays", range(40), LONG, alone)
    expected = alone.run([stays])["stays"]

    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            staying = asyncio.create_task(engine.submit(stays).collect())
            for i in range(5):
                leaving = make_request(f"leaves {i}", range(60), LONG, serving)
                async with engine.submit(leaving) as stream:
                    async for _ in stream:
                        break
            assert Result.of(await staying) == expected
            await engine.drain()
            assert engine.num_requests == 0

    run(work())
    serving.assert_empty()


def test_a_cancelled_task_ends_its_request(serving: Serving) -> None:
    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:

            async def consume() -> None:
                request = make_request("a", range(60), LONG, serving)
                async with engine.submit(request) as stream:
                    await stream.collect()

            task = asyncio.create_task(consume())
            while not serving.scheduler.num_running:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await engine.drain()

    run(work())
    serving.assert_empty()


def test_a_request_may_be_cancelled_at_any_moment(serving: Serving) -> None:
    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            at_once = engine.submit(make_request("at once", range(9), LONG, serving))
            assert engine.cancel("at once")
            later = engine.submit(make_request("later", range(9), LONG, serving))
            async for _ in later:
                break
            assert engine.cancel("later") and engine.cancel("later")
            for stream in (at_once, later):
                output = await stream.collect()
                assert output.outputs[0].finish_reason == "abort"
            assert not engine.cancel("later")
            assert not engine.cancel("never was")

    run(work())
    serving.assert_empty()


def test_ids_in_use_are_refused_and_may_come_again(serving: Serving) -> None:
    few = SamplingParams(seed=0, max_tokens=2)

    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            for _ in range(2):
                stream = engine.submit(make_request("a", range(9), few, serving))
                with pytest.raises(RequestError, match="'a' is in use"):
                    engine.submit(make_request("a", range(9), few, serving))
                await stream.collect()

    run(work())


def test_draining_lets_all_end_and_takes_no_more(serving: Serving) -> None:
    async def work() -> None:
        engine = AsyncEngine(serving.engine)
        stream = engine.submit(make_request("a", range(9), LONG, serving))
        await engine.drain()
        assert stream.output is not None
        assert stream.output.outputs[0].finish_reason == "length"
        with pytest.raises(EngineClosed):
            engine.submit(make_request("b", range(9), LONG, serving))
        await engine.close()

    run(work())
    serving.assert_empty()


def test_closing_ends_what_is_underway(serving: Serving) -> None:
    async def work() -> None:
        engine = AsyncEngine(serving.engine)
        stream = engine.submit(make_request("a", range(9), LONG, serving))
        await engine.close()
        output = await stream.collect()
        assert output.outputs[0].finish_reason == "abort"

    run(work())
    serving.assert_empty()


class Guilty(Sampler):
    """Fails whenever a certain request is about to get its fourth token."""

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        for row in plan.sampling:
            if row.request.id == "guilty" and len(row.history) - len(row.request.prompt) == 3:
                raise PassFailed
        return super().__call__(source, plan)


def test_a_request_that_fails_ends_alone(small_tokenizer: Tokenizer) -> None:
    """A13."""
    alone = Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer)
    expected = alone.run(requests(alone))
    sampler = Guilty(KernelSelector("reference"), 512, torch.float32)
    spoilt = Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer, sampler=sampler)

    async def work() -> None:
        async with AsyncEngine(spoilt.engine) as engine:
            guilty = engine.submit(make_request("guilty", range(50), LONG, spoilt))
            streams = [engine.submit(request) for request in requests(spoilt)]
            outputs = await asyncio.gather(*(stream.collect() for stream in streams))
            assert {output.request_id: Result.of(output) for output in outputs} == expected
            num_tokens = 0
            with pytest.raises(RequestFailed, match="PassFailed"):
                async for delta in guilty:
                    num_tokens += len(delta.tokens)
            assert num_tokens == 3
            again = make_request("after", range(9), SamplingParams(max_tokens=2), spoilt)
            await engine.submit(again).collect()

    run(work())
    spoilt.assert_empty()


def test_a_pass_that_fails_by_chance_ends_nobody(
    serving: Serving, small_tokenizer: Tokenizer
) -> None:
    alone = Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer)
    expected = alone.run(requests(alone))
    serving.runner.failing.fail_at = {3, 4, 20}

    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            streams = [engine.submit(request) for request in requests(serving)]
            outputs = await asyncio.gather(*(s.collect() for s in streams), return_exceptions=True)
        kept = [output for output in outputs if not isinstance(output, BaseException)]
        assert len(kept) >= len(streams) - 1  # one may have been alone when it failed
        for output in kept:
            assert Result.of(output) == expected[output.request_id]

    run(work())
    serving.assert_empty()


def test_a_full_queue_refuses_at_once(small_tokenizer: Tokenizer) -> None:
    sizes = Sizes(max_num_seqs=1)
    small = Serving(tiny(TEXT_MODELS["hybrid"]), small_tokenizer, sizes, max_num_waiting=1)

    async def work() -> None:
        async with AsyncEngine(small.engine) as engine:
            streams = [engine.submit(make_request(str(i), range(9), LONG, small)) for i in range(5)]
            results = await asyncio.gather(
                *(stream.accepted() for stream in streams), return_exceptions=True
            )
            refused = [isinstance(result, QueueFull) for result in results]
            assert not refused[0] and any(refused)
            for stream, was_refused in zip(streams, refused, strict=True):
                assert stream.has_ended or not was_refused

    run(work())
    small.assert_empty()


def test_an_idle_engine_uses_no_cpu(serving: Serving) -> None:
    """M7, by the process's own clock of CPU time."""

    async def work() -> None:
        async with AsyncEngine(serving.engine) as engine:
            await engine.submit(requests(serving)[0]).collect()
            before = time.process_time()
            await asyncio.sleep(1)
            assert time.process_time() - before < 0.03

    run(work())
