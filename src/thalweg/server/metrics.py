"""The engine's counters in Prometheus' form, and the server's own few."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from thalweg.engine.metrics import EngineStats, Histogram


class Metrics:
    """A registry of its own, so that several servers may live in one process."""

    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(stats))
        self._failed = Counter(
            "thalweg_requests_failed",
            "Requests whose computation failed.",
            registry=self._registry,
        )
        self._refused = Counter(
            "thalweg_requests_refused",
            "Requests that were answered with an error at once.",
            ["status"],
            registry=self._registry,
        )

    def failed(self) -> None:
        self._failed.inc()

    def refused(self, status: int) -> None:
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for name, text, value in (
            ("running", "Answers running.", stats.num_running),
            ("waiting", "Answers waiting for their turn.", stats.num_waiting),
            ("blocks_total", "KV blocks.", stats.blocks.num_total),
            ("blocks_used", "KV blocks in use, cached ones included.", stats.blocks.num_used),
            ("blocks_cached", "KV blocks the prefix cache knows.", stats.blocks.num_cached),
            ("slots_total", "State slots.", stats.slots.num_total),
            ("slots_used", "State slots in use, snapshots included.", stats.slots.num_used),
            ("slots_cached", "State snapshots of the prefix cache.", stats.slots.num_cached),
        ):
            yield GaugeMetricFamily(f"thalweg_{name}", text, value)
        for name, text, value in (
            ("steps", "Passes made.", stats.num_steps),
            ("failed_steps", "Passes that failed.", stats.num_failed_steps),
            ("computed_tokens", "Tokens computed, again or not.", stats.num_computed_tokens),
            ("generated_tokens", "Tokens of answers.", stats.num_generated_tokens),
            ("prompt_tokens", "Tokens of prompts.", stats.num_prompt_tokens),
            ("cached_tokens", "Of these, known to the prefix cache.", stats.num_cached_tokens),
            ("preemptions", "Answers that gave up their memory.", stats.num_preemptions),
            ("verifying", "Rows of passes that had guesses.", stats.drafts.num_passes),
        ):
            yield CounterMetricFamily(f"thalweg_{name}", text, value)
        for name, text, counts in (
            ("drafted_tokens", "Guesses verified, by place.", stats.drafts.drafted),
            ("kept_tokens", "Of these, right like all before them.", stats.drafts.kept),
        ):
            family = CounterMetricFamily(f"thalweg_{name}", text, labels=["place"])
            for place, count in enumerate(counts, start=1):
                family.add_metric([str(place)], count)
            yield family
        decisions = CounterMetricFamily(
            "thalweg_gate_decisions", "Passes by what the gate decided.", labels=["decision"]
        )
        for decision, count in asdict(stats.gate).items():
            decisions.add_metric([decision.removeprefix("num_")], count)
        yield decisions
        answers = CounterMetricFamily("thalweg_answers", "Answers ended.", labels=["reason"])
        for reason, count in stats.num_finished.items():
            answers.add_metric([reason], count)
        yield answers
        for name, text, histogram in (
            ("step_sequences", "Sequences of a pass.", stats.step_seqs),
            ("step_tokens", "New tokens of a pass.", stats.step_tokens),
            ("step_seconds", "Duration of a pass.", stats.step_seconds),
            ("queue_seconds", "From admission to work.", stats.queue_seconds),
            ("first_token_seconds", "From admission to a token.", stats.first_token_seconds),
            ("inter_token_seconds", "Between two tokens.", stats.inter_token_seconds),
        ):
            yield HistogramMetricFamily(
                f"thalweg_{name}", text, _buckets(histogram), sum_value=histogram.total
            )


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus counts all values up to each bound, those below the one before included."""
    total = 0
    buckets: list[tuple[str, float]] = []
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
