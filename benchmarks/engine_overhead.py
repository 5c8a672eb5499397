"""What of a decode step is not kernels: the engine's own overhead, and where it goes.

    python benchmarks/engine_overhead.py MODEL --threads 2 --sequences 1 8

Every call into the compiled kernels is timed while whole engine steps are; the rest of a step is
overhead, less what the timing itself costs. The profile that follows is of the same steps with
Python's profiler on, which makes everything but kernels several times slower: read its order, not
its times.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from in_turn import heading, table
from thalweg import LLM
from thalweg.engine.workbench import Workbench
from thalweg.ops import extension

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_CALIBRATION = 20_000


class KernelClock:
    """Adds up the time inside the extension, by kernel."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    def reset(self) -> None:
        self.seconds.clear()
        self.calls.clear()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            plain = [_inside(each) for each in args]
            start = time.perf_counter()
            result = function(*plain, **named)
            self.seconds[name] += time.perf_counter() - start
            self.calls[name] += 1
            if type(result).__module__.startswith("thalweg._kernels"):
                return Watched(result, type(result).__name__, self)
            return result

        return call


class Watched:
    """The extension, or an object of it, whose calls are timed."""

    def __init__(self, inside: Any, name: str, clock: KernelClock) -> None:
        self.inside = inside
        self._name = name
        self._clock = clock

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self.inside, attribute)
        if callable(value):
            value = self._clock.timed(f"{self._name}.{attribute}", value)
            setattr(self, attribute, value)
        return value

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._clock.timed(self._name, self.inside)(*args, **named)


def _inside(value: Any) -> Any:
    if isinstance(value, list):
        return [_inside(each) for each in value]
    return value.inside if isinstance(value, Watched) else value


def cost_of_timing() -> float:
    """Seconds that a timed call takes longer than is written down for it."""
    clock = KernelClock()
    call = clock.timed("nothing", lambda *args: None)
    arguments = tuple(range(8))
    start = time.perf_counter()
    for _ in range(NUM_CALIBRATION):
        call(*arguments)
    return (time.perf_counter() - start - clock.seconds["nothing"]) / NUM_CALIBRATION


def measure(
    workbench: Workbench, clock: KernelClock, num_seqs: int, args: argparse.Namespace
) -> None:
    contexts = workbench.contexts(num_seqs, args.depth)
    per_call = cost_of_timing()
    workbench.time_generation(contexts, args.steps)
    steps, kernels, numbers = [], [], []
    for _ in range(args.repeats):
        total, inside, calls = one_run(workbench, clock, contexts, args.steps)
        steps.append((total - per_call * calls) / args.steps)
        kernels.append(inside / args.steps)
        numbers.append(calls / args.steps)
    step, kernel = statistics.median(steps), statistics.median(kernels)
    overheads = [a - b for a, b in zip(steps, kernels, strict=True)]
    overhead = statistics.median(overheads)
    print(f"\n{num_seqs} sequences at depth {args.depth}, a step in ms\n")
    rows = [
        ("whole step", f"{1e3 * step:.3f}", ""),
        (f"kernels, {statistics.median(numbers):.0f} calls", f"{1e3 * kernel:.3f}", ""),
        ("overhead", f"{1e3 * overhead:.3f}", f"{overhead / step:.1%}"),
    ]
    slowest = sorted(clock.seconds.items(), key=lambda each: -each[1])
    for name, seconds in slowest[: args.lines]:
        rows.append((name, f"{1e3 * seconds / args.steps:.3f}", ""))
    print(table(("", "ms", "share"), rows), flush=True)


def one_run(
    workbench: Workbench, clock: KernelClock, contexts: Any, num_steps: int
) -> tuple[float, float, int]:
    """(seconds of the timed steps, of these in kernels, calls)

    The first steps, before all sequences have begun, are not timed: kernels are counted from the
    first timed one on by the difference to a run of no steps.
    """
    clock.reset()
    workbench.time_generation(contexts, 0)
    before, num_before = dict(clock.seconds), clock.calls.total()
    clock.reset()
    total = workbench.time_generation(contexts, num_steps)
    for name, seconds in before.items():
        clock.seconds[name] -= seconds
    return total, sum(clock.seconds.values()), clock.calls.total() - num_before


def profile(workbench: Workbench, num_seqs: int, args: argparse.Namespace) -> None:
    contexts = workbench.contexts(num_seqs, args.depth)
    profiler = cProfile.Profile()
    profiler.enable()
    workbench.time_generation(contexts, args.steps)
    profiler.disable()
    print(f"\nProfile of {args.steps} steps of {num_seqs} sequences, kernels within `ops`:\n")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(args.lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="directory or GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lines", type=int, default=20, help="of the lists")
    parser.add_argument("--cache-memory", type=int, default=2 << 30)
    args = parser.parse_args()
    if extension._MODULE is None:
        raise SystemExit(f"only compiled kernels can be timed: {extension._REASON}")
    module, clock = extension._MODULE, KernelClock()
    options = {"threads": args.threads, "cache_memory": args.cache_memory, "kernels": "cpu"}
    print(heading(args.threads))
    print(args.model)
    extension._MODULE = Watched(module, "kernels", clock)  # type: ignore[assignment]
    with LLM(args.model, **options) as llm:
        workbench = Workbench(llm.loaded)
        for num_seqs in args.sequences:
            measure(workbench, clock, num_seqs, args)
    extension._MODULE = module
    with LLM(args.model, **options) as llm:
        workbench = Workbench(llm.loaded)
        for num_seqs in args.sequences:
            profile(workbench, num_seqs, args)


if __name__ == "__main__":
    main()
