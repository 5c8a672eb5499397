"""A long prompt beside eight running answers: the time between their tokens, bounded and not.

    python benchmarks/inter_token.py MODEL --threads 2

First a plain decode step of 8 rows is timed. With `max_inter_token_ms` at four times that, eight
answers run while a prompt of 4,000 tokens is computed; then the same without a bound. Told are the
gaps between the answers' tokens while the prompt was computed, and the tokens a second of it all.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from random import Random

from thalweg import LLM, SamplingParams
from thalweg.engine.admission import admit

NUM_ANSWERS, WARM_STEPS, TIMED_STEPS = 8, 20, 30


@dataclass(frozen=True, slots=True)
class Measured:
    plain_step: float
    """Seconds, the median."""
    gaps: tuple[float, ...]
    """Seconds between an answer's tokens while the prompt was computed."""
    tokens_per_second: float
    """Prompt and answers, while the prompt was computed."""

    @property
    def p99(self) -> float:
        return sorted(self.gaps)[int(0.99 * (len(self.gaps) - 1))]


class Bench:
    def __init__(self, llm: LLM, prompt_length: int) -> None:
        self.llm, self.engine = llm, llm.loaded.engine
        self.random = Random(0)
        self.prompt_length = prompt_length

    def measure(self) -> Measured:
        for i in range(NUM_ANSWERS):
            self.ask(f"answer-{i}", 32, max_tokens=2000)
        # One prompt beforehand, so that the cost model has seen one, as in any server that runs.
        self.until_ended(self.ask("first", self.prompt_length, max_tokens=1))
        steps = [self.step() for _ in range(WARM_STEPS + TIMED_STEPS)][WARM_STEPS:]
        before, start = self.engine.stats().num_computed_tokens, time.perf_counter()
        gaps = self.until_ended(self.ask("long", self.prompt_length, max_tokens=1))
        seconds = time.perf_counter() - start
        num_tokens = self.engine.stats().num_computed_tokens - before
        for i in range(NUM_ANSWERS):
            self.engine.cancel(f"answer-{i}")
        return Measured(statistics.median(steps), tuple(gaps), num_tokens / seconds)

    def ask(self, name: str, length: int, *, max_tokens: int) -> str:
        limits = self.llm.loaded.limits
        prompt = self.random.choices(range(min(limits.vocab_size, 30_000)), k=length)
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        self.engine.add_request(admit(name, prompt, params, limits=limits))
        return name

    def step(self) -> float:
        start = time.perf_counter()
        self.engine.step()
        return time.perf_counter() - start

    def until_ended(self, name: str) -> list[float]:
        """Each step gives every answer a token, so a step is a gap."""
        gaps = []
        while self.engine.is_underway(name):
            gaps.append(self.step())
        return gaps


def run(arguments: argparse.Namespace, bound: float | None) -> Measured:
    with LLM(
        arguments.model,
        threads=arguments.threads,
        max_inter_token_ms=None if bound is None else 1000 * bound,
        prefix_cache=False,
    ) as llm:
        return Bench(llm, arguments.prompt).measure()


def tell(name: str, found: Measured) -> None:
    print(
        f"{name:<12} plain step {1000 * found.plain_step:7.1f} ms, gaps: median "
        f"{1000 * statistics.median(found.gaps):7.1f}, p99 {1000 * found.p99:7.1f}, longest "
        f"{1000 * max(found.gaps):7.1f} ms; {found.tokens_per_second:7.1f} tokens/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt", type=int, default=4000)
    arguments = parser.parse_args()
    free = run(arguments, None)
    tell("first come", free)
    bound = 4 * free.plain_step
    bounded = run(arguments, bound)
    tell(f"{1000 * bound:.0f} ms", bounded)
    for what, is_kept in (
        ("p99 <= bound + a plain step", bounded.p99 <= bound + bounded.plain_step),
        ("longest <= 2 bounds", max(bounded.gaps) <= 2 * bound),
        ("throughput >= 85 %", bounded.tokens_per_second >= 0.85 * free.tokens_per_second),
    ):
        print(f"{what:<28} {'yes' if is_kept else 'NO'}")


if __name__ == "__main__":
    main()
