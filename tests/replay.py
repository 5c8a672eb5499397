"""A trace, played to a new scheduler: it must decide the same again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from thalweg.config import EngineConfig, RequestOptions, Rollback, SamplingParams
from thalweg.engine.speculation import Key, computes_answers_alone, verified
from thalweg.memory.manager import CacheManager
from thalweg.memory.offload.host_tier import HostTier
from thalweg.scheduler.plan import StepPlan, StepResult, Token
from thalweg.scheduler.policy import make_policy
from thalweg.scheduler.request import Request, Sample
from thalweg.scheduler.reuse import ReusePolicy
from thalweg.scheduler.scheduler import Scheduler, SchedulerLimits
from thalweg.scheduler.trace import decisions
from thalweg.speculative.gate import Candidate, Gate, Verified

if TYPE_CHECKING:
    from collections.abc import Iterable


def replay(lines: Iterable[str]) -> int:
    """Asserts that every decision comes again. -> how many steps were planned"""
    events = map(json.loads, lines)
    scheduler, gate = make_scheduler(next(events)), Gate[Key]()
    found: dict[Key, Verified] = {}
    alone = False
    plan: StepPlan | None = None
    num_planned = 0
    for event in events:
        match event.pop("event"):
            case "add":
                scheduler.add(make_request(event))
            case "abort":
                scheduler.abort(event["id"])
            case "isolate":
                scheduler.isolate(event["id"])
            case "finish":
                scheduler.finish(find(scheduler, event))
            case "preempt":
                scheduler.preempt(find(scheduler, event))
            case "draft":
                scheduler.draft(find(scheduler, event), tuple(event["drafts"]))
            case "room":
                scheduler.make_room(event["blocks"], event["slots"])
            case "ask":
                candidates = [Candidate((i, n), most) for i, n, most, _ in event["rows"]]
                assert gate.choose(candidates) == [row[-1] for row in event["rows"]]
            case "plan":
                num_planned += 1
                plan = scheduler.schedule()
                assert decisions(plan) == event["rows"]
            case "fail":
                assert plan is not None
                scheduler.rollback(plan)
            case "step":
                assert plan is not None
                found = verified(plan, event["accepted"])
                alone = computes_answers_alone(plan)
                sampled = tuple(map(Token, event["sampled"]))
                result = StepResult(sampled, (Token(0),) * event["scored"])
                new = scheduler.update(plan, result, event["accepted"])
                made = [[*key(e.sample), e.token.id, e.finish_reason] for e in new]
                assert made == event["new"]
            case "time":
                assert plan is not None
                scheduler.observe(plan, event["seconds"])
                seconds = event["seconds"] if alone else None
                gate.observe(found, num_seqs=len(plan.rows), seconds=seconds)
            case other:
                raise AssertionError(f"unknown event {other}")
    return num_planned


def make_scheduler(begin: dict[str, Any]) -> Scheduler:
    assert begin["event"] == "begin" and begin["version"] == 1
    limits = SchedulerLimits(**begin["limits"])
    config = EngineConfig(
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_inter_token_ms=begin["max_inter_token_ms"],
    )
    caches = CacheManager(
        begin["num_blocks"],
        begin["block_size"],
        begin["num_slots"],
        Rollback(begin["rollback"]),
    )
    return Scheduler(
        caches,
        limits,
        ReusePolicy(**begin["reuse"]),
        policy=make_policy(config),
        tier=HostTier(caches, begin["num_host_blocks"], begin["num_host_slots"]),
    )


def make_request(add: dict[str, Any]) -> Request:
    return Request(
        id=add["id"],
        prompt=tuple(add["prompt"]),
        params=SamplingParams(n=add["n"], prompt_logprobs=0 if add["scored"] else None),
        seed=0,
        max_tokens=add["max_tokens"],
        stop_ids=frozenset(add["stop_ids"]),
        snapshot_hints=tuple(add["hints"]),
        options=RequestOptions(priority=add["priority"], cache_salt=add["cache_salt"]),
    )


def find(scheduler: Scheduler, event: dict[str, Any]) -> Sample:
    samples = [*scheduler._running, *scheduler._waiting]
    return next(s for s in samples if key(s) == [event["id"], event["index"]])


def key(sample: Sample) -> list[Any]:
    return [sample.request.id, sample.index]
