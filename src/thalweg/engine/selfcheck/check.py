"""Runs the passes of a selfcheck and compares each with what every request got alone and cold."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from thalweg.engine.engine import Engine
from thalweg.engine.loading import make_parts
from thalweg.engine.selfcheck.compare import compare
from thalweg.engine.selfcheck.known_answers import KnownAnswers
from thalweg.engine.selfcheck.passes import COLD, PASSES, Arrival, CheckPass
from thalweg.engine.selfcheck.workload import Workload, context_needed
from thalweg.engine.speculation import Speculation
from thalweg.errors import ConfigError
from thalweg.memory.plan import plan_caches
from thalweg.models.build import set_num_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from thalweg.config import EngineConfig
    from thalweg.engine.loading import LoadedEngine
    from thalweg.engine.outputs import RequestOutput
    from thalweg.engine.selfcheck.compare import Comparison
    from thalweg.scheduler.request import Request

MAX_SEQS = 8
"""More than the requests have answers."""
FIRST_PREEMPTION = 3
"""After so many steps, and then ever more rarely, so that the longest prompt gets done."""


@dataclass(frozen=True, slots=True)
class Happened:
    """Counts that show that a pass did what it is about."""

    passes: int
    shared_passes: int
    """With more than two sequences: one request has two answers."""
    cached_tokens: int
    preemptions: int
    parkings: int
    """Of these, to the host tier."""
    drafts: int
    kept_drafts: int
    rejected_drafts: int


@dataclass(frozen=True, slots=True)
class CheckedPass:
    name: str
    about: str
    happened: Happened
    missing: tuple[str, ...]
    """Counts that are zero and should not be: the pass shows nothing then."""
    comparison: Comparison
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.missing and self.comparison.difference is None


Results = dict[str, "RequestOutput"]


class SelfCheck:
    """On the weights and kernels of a loaded engine, each pass with caches of its own."""

    def __init__(
        self, loaded: LoadedEngine, config: EngineConfig, *, num_tokens: int = 12, seed: int = 0
    ) -> None:
        """Answers have `num_tokens` tokens; another seed asks other questions. `ConfigError` where
        the model's context has no room for them."""
        self._loaded, self._config = loaded, config
        self._context = context_needed(num_tokens)
        if (most := loaded.limits.max_model_len) < self._context:
            raise ConfigError(
                f"a context of {most} tokens is too short for a selfcheck with answers of "
                f"{num_tokens}: {self._context} are needed"
            )
        self._workload = Workload(loaded.limits, num_tokens=num_tokens, seed=seed)

    @property
    def unpromised(self) -> tuple[str, ...]:
        """Kinds of kernels in use that do not promise the same bits."""
        kinds = dict.fromkeys(choice.kernel for choice in self._loaded.execution.choices)
        return tuple(kind for kind in kinds if kind != "cpu")

    @property
    def passes(self) -> tuple[CheckPass, ...]:
        """Those that are of use here."""
        alone = self._loaded.num_threads == 1
        headless = self._loaded.shared.built.mtp is None
        return tuple(
            each
            for each in PASSES
            if not (alone and each.single_thread) and not (headless and each.needs_head)
        )

    def run(self) -> Iterator[CheckedPass]:
        cold = CheckPass(name="cold", about="")
        asked = self._workload.first()
        expected = self._results(cold, asked, {})[0][-1]
        answer = expected[asked[0].id].outputs[0].token_ids
        asked.append(self._workload.follow_up(asked[0], answer))
        expected |= self._results(cold, asked[-1:], {})[0][-1]
        for each in self.passes:
            start = time.perf_counter()
            rounds, happened = self._results(each, asked, expected)
            seconds = time.perf_counter() - start
            compared = [compare(expected, results) for results in rounds]
            wrong = [one for one in compared if one.difference is not None]
            counts = asdict(happened)
            missing = tuple(name for name in each.shows if not counts[name])
            yield CheckedPass(
                each.name, each.about, happened, missing, (wrong or compared)[0], seconds
            )

    def _results(
        self, each: CheckPass, asked: list[Request], expected: Mapping[str, RequestOutput]
    ) -> tuple[list[Results], Happened]:
        """What every request got in each round."""
        set_num_threads(1 if each.single_thread else self._config.threads)
        try:
            run = PassRun(self._loaded, self._pass_config(each), each, expected)
            rounds = [run.round(asked) for _ in range(each.num_rounds)]
            return rounds, run.happened()
        finally:
            set_num_threads(self._config.threads)

    def _pass_config(self, each: CheckPass) -> EngineConfig:
        memory = self._loaded.caches.nbytes
        options = {**COLD, **each.options}
        if "offload_memory" in options:
            options["offload_memory"] = memory // 2
        return replace(
            self._config,
            max_num_seqs=MAX_SEQS,
            max_model_len=self._context,
            memory=None,
            cache_memory=memory,
            max_inter_token_ms=None,
            trace_file=None,
            **options,
        )


class PassRun:
    """One engine and what is done to it."""

    def __init__(
        self,
        loaded: LoadedEngine,
        config: EngineConfig,
        each: CheckPass,
        expected: Mapping[str, RequestOutput],
    ) -> None:
        self._pass = each
        limit = loaded.limits.max_model_len
        plan = plan_caches(
            loaded.shared.specs,
            config,
            cache_memory=loaded.caches.nbytes,
            model_max_len=limit,
        )
        parts = make_parts(loaded.shared, config, plan)
        parts = replace(parts, speculation=parts.speculation.ungated())
        if each.accuracy is not None:
            texts = [
                [*output.prompt_token_ids, *answer.token_ids]
                for output in expected.values()
                for answer in output.outputs
            ]
            drafter = KnownAnswers(texts, each.accuracy)
            parts = replace(parts, speculation=Speculation(drafter, num_drafts=config.num_drafts))
        self._parts, self._engine = parts, Engine(parts)
        self._num_steps = 0
        self._preempt_at = FIRST_PREEMPTION

    def round(self, asked: list[Request]) -> Results:
        """All requests to the end."""
        coming, results = deque(asked), Results()
        while coming or self._engine.has_work:
            for _ in range(self._num_newcomers(len(coming))):
                self._engine.add_request(coming.popleft())
            step = self._engine.step()
            self._num_steps += 1
            results |= {output.request_id: output for output in step.finished}
            if self._pass.preempts and self._num_steps >= self._preempt_at:
                self._preempt_at += max(FIRST_PREEMPTION, self._num_steps // 2)
                self._engine.isolate("nobody")  # all who run give way
                self._engine.isolate(None)
        return results

    def happened(self) -> Happened:
        stats, counts = self._engine.stats(), self._parts.speculation.counts
        return Happened(
            passes=stats.num_steps,
            shared_passes=stats.num_steps - sum(stats.step_seqs.counts[:2]),
            cached_tokens=stats.num_cached_tokens,
            preemptions=stats.num_preemptions,
            parkings=stats.num_parkings,
            drafts=counts.num_drafted,
            kept_drafts=counts.num_kept,
            rejected_drafts=counts.num_drafted - counts.num_kept,
        )

    def _num_newcomers(self, num_coming: int) -> int:
        """How many come before the next step."""
        is_idle = not self._engine.has_work
        match self._pass.arrival:
            case Arrival.TOGETHER:
                return num_coming
            case Arrival.JOINING:
                return min(num_coming, int(is_idle or self._num_steps % 2 == 0))
            case Arrival.ALONE:
                return min(num_coming, int(is_idle))
