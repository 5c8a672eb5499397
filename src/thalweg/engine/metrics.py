"""What an engine has done so far and holds now, as plain numbers to export."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.engine.outputs import RequestOutput
    from thalweg.engine.speculation import Speculation
    from thalweg.memory.manager import CacheManager
    from thalweg.scheduler.plan import StepPlan
    from thalweg.scheduler.scheduler import Scheduler
    from thalweg.speculative.counts import DraftCounts
    from thalweg.speculative.gate import GateRecord

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """Values up to each bound and above the one before; the last one counts those above all."""
    total: float
    """Sum of the values."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    num_total: int
    num_used: int
    """By sequences, by the prefix cache, or by both."""
    num_cached: int
    """Known to the prefix cache; given up when sequences need them."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters run from the engine's start; pools and queues are as they are now."""

    num_running: int
    """Answers, not requests."""
    num_waiting: int
    blocks: PoolUse
    slots: PoolUse
    num_steps: int
    num_failed_steps: int
    num_computed_tokens: int
    """Of prompts and answers, those computed again included."""
    num_generated_tokens: int
    num_prompt_tokens: int
    """Of ended requests."""
    num_cached_tokens: int
    """Those of them that the prefix cache knew."""
    num_preemptions: int
    num_parkings: int
    """Of these, how many went to the host tier instead of being computed again."""
    drafts: DraftCounts
    gate: GateRecord
    """What was decided about drafts, in passes."""
    num_finished: Mapping[str, int]
    """Answers by finish reason."""
    step_seqs: Histogram
    step_tokens: Histogram
    step_seconds: Histogram
    queue_seconds: Histogram
    first_token_seconds: Histogram
    inter_token_seconds: Histogram

    @property
    def hit_rate(self) -> float:
        """Part of the prompts' tokens that came from the prefix cache."""
        return self.num_cached_tokens / max(1, self.num_prompt_tokens)


class Metrics:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._finished = dict.fromkeys(("stop", "length", "abort", "timeout"), 0)
        self._step_seqs, self._step_tokens = _Values(COUNTS), _Values(COUNTS)
        self._step_seconds, self._queue = _Values(SECONDS), _Values(SECONDS)
        self._first_token, self._inter_token = _Values(SECONDS), _Values(SECONDS)

    def stepped(self, plan: StepPlan, seconds: float) -> None:
        self._counts["steps"] += 1
        self._counts["computed"] += plan.load.num_tokens
        self._step_seqs.add(plan.load.num_seqs)
        self._step_tokens.add(plan.load.num_tokens)
        self._step_seconds.add(seconds)

    def failed(self) -> None:
        self._counts["failed"] += 1

    def ended(self, output: RequestOutput) -> None:
        self._counts["prompt"] += len(output.prompt_token_ids)
        self._counts["cached"] += output.num_cached_tokens
        self._counts["generated"] += output.num_generated
        self._queue.add(output.timings.queue)
        if output.num_generated:
            self._first_token.add(output.timings.first_token)
        for answer, gaps in zip(output.outputs, output.timings.inter_token, strict=True):
            self._finished[answer.finish_reason] += 1
            for gap in gaps:
                self._inter_token.add(gap)

    def snapshot(
        self, scheduler: Scheduler, caches: CacheManager, speculation: Speculation
    ) -> EngineStats:
        known, counts = scheduler.prefix_cache, self._counts
        blocks, slots = caches.blocks, caches.slots
        return EngineStats(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            blocks=PoolUse(blocks.size - 1, blocks.num_used, known.num_blocks),
            slots=PoolUse(slots.size - 1, slots.num_used, known.num_snapshots),
            num_steps=counts["steps"],
            num_failed_steps=counts["failed"],
            num_computed_tokens=counts["computed"],
            num_generated_tokens=counts["generated"],
            num_prompt_tokens=counts["prompt"],
            num_cached_tokens=counts["cached"],
            num_preemptions=scheduler.num_preemptions,
            num_parkings=scheduler.num_parkings,
            drafts=speculation.counts,
            gate=speculation.record,
            num_finished=dict(self._finished),
            step_seqs=self._step_seqs.histogram(),
            step_tokens=self._step_tokens.histogram(),
            step_seconds=self._step_seconds.histogram(),
            queue_seconds=self._queue.histogram(),
            first_token_seconds=self._first_token.histogram(),
            inter_token_seconds=self._inter_token.histogram(),
        )


class _Values:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def histogram(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)
