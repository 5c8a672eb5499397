"""All that goes into a scheduler and all that it decides, as lines of JSON.

A scheduler is deterministic: fed with the same requests, tokens and times it decides the same, so
a trace can be replayed (`tests/replay.py`) and a decision looked at as often as one likes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.config import EngineConfig
    from thalweg.memory.manager import CacheManager
    from thalweg.memory.offload.host_tier import HostTier
    from thalweg.scheduler.plan import NewToken, StepPlan, StepResult
    from thalweg.scheduler.request import Request, Sample
    from thalweg.scheduler.reuse import ReusePolicy
    from thalweg.scheduler.scheduler import SchedulerLimits

VERSION = 1


class Trace:
    """Writes to a file, which is opened for each line; without a path, nowhere."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Empties the file. Raises `ConfigError` if it cannot be written."""
        self._path = None if path is None else Path(path)
        if self._path is not None:
            try:
                self._path.write_text("")
            except OSError as error:
                problem = f"trace_file = {str(path)!r} cannot be written: {error.strerror}"
                raise ConfigError(problem) from error

    def begin(
        self,
        caches: CacheManager,
        tier: HostTier,
        limits: SchedulerLimits,
        reuse: ReusePolicy,
        *,
        config: EngineConfig,
    ) -> None:
        """What the scheduler is made with."""
        self._write(
            "begin",
            version=VERSION,
            num_blocks=caches.blocks.size,
            block_size=caches.block_size,
            num_slots=caches.slots.size,
            rollback=caches.rollback.value,
            num_host_blocks=tier.blocks.size,
            num_host_slots=tier.slots.size,
            limits=asdict(limits),
            reuse=asdict(reuse),
            max_inter_token_ms=config.max_inter_token_ms,
        )

    def added(self, request: Request) -> None:
        self._write(
            "add",
            id=request.id,
            prompt=request.prompt,
            n=request.params.n,
            scored=request.params.prompt_logprobs is not None,
            max_tokens=request.max_tokens,
            stop_ids=sorted(request.stop_ids),
            hints=request.snapshot_hints,
            priority=request.options.priority,
            cache_salt=request.options.cache_salt,
        )

    def aborted(self, request_id: str) -> None:
        self._write("abort", id=request_id)

    def preempted(self, sample: Sample) -> None:
        """Because somebody said so."""
        self._write("preempt", id=sample.request.id, index=sample.index)

    def isolated(self, request_id: str | None) -> None:
        self._write("isolate", id=request_id)

    def finished(self, sample: Sample) -> None:
        """An answer was ended by what its text says."""
        self._write("finish", id=sample.request.id, index=sample.index)

    def planned(self, plan: StepPlan) -> None:
        if self._path is None:  # the lists are long
            return
        self._write("plan", rows=decisions(plan), copies=[asdict(copy) for copy in plan.copies])

    def failed(self) -> None:
        self._write("fail")

    def asked(self, most: Sequence[tuple[Sample, int]], chosen: Sequence[int]) -> None:
        """How many drafts each answer may have, and how many it should have."""
        self._write(
            "ask",
            rows=[
                [sample.request.id, sample.index, num, num_chosen]
                for (sample, num), num_chosen in zip(most, chosen, strict=True)
            ],
        )

    def drafted(self, sample: Sample, drafts: Sequence[int]) -> None:
        self._write("draft", id=sample.request.id, index=sample.index, drafts=drafts)

    def made_room(self, num_blocks: int, num_slots: int) -> None:
        self._write("room", blocks=num_blocks, slots=num_slots)

    def stepped(self, result: StepResult, num_accepted: Sequence[int], new: list[NewToken]) -> None:
        """What the pass gave, and what came of it."""
        self._write(
            "step",
            sampled=[token.id for token in result.sampled],
            scored=len(result.scored),
            accepted=num_accepted,
            new=[[e.sample.request.id, e.sample.index, e.token.id, e.finish_reason] for e in new],
        )

    def took(self, seconds: float) -> None:
        self._write("time", seconds=seconds)

    def _write(self, event: str, **values: Any) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps({"event": event} | values, separators=(",", ":")), file=file)


def decisions(plan: StepPlan) -> list[list[Any]]:
    """[request, answer, first token, tokens, blocks, slots to store to] of each row."""
    return [
        [
            row.sample.request.id,
            row.sample.index,
            row.reservation.seq.num_computed,
            len(row.token_ids),
            list(row.reservation.seq.blocks),
            list(row.reservation.store_slots),
        ]
        for row in plan.rows
    ]
