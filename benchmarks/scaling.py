"""How cost grows, ours and llama.cpp's: decoding with the context and with the number of sequences,
prompts with their length.

    python benchmarks/scaling.py MODEL.gguf --threads 2 --json scaling.json --plot docs/scaling.png

Both are timed in turn. With a context of 32 k each engine first computes as many tokens: on two
cores and the 0.8B shape the whole takes most of an hour; the --max options make it shorter.
`--replot scaling.json` draws what was measured before. Plots need matplotlib.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from in_turn import heading, in_turn, table
from llama_cpp_peer import LlamaModel, llama_workbench
from thalweg import LLM
from thalweg.engine.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_DECODED = 8


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    thalweg: float
    """Milliseconds."""
    llama_cpp: float


@dataclass(frozen=True, slots=True)
class Curve:
    title: str
    x_label: str
    y_label: str
    points: list[Point]

    def text(self) -> str:
        rows = [
            (str(p.x), f"{p.thalweg:.1f}", f"{p.llama_cpp:.1f}", f"{p.llama_cpp / p.thalweg:.2f}")
            for p in self.points
        ]
        columns = (self.x_label, "thalweg", "llama.cpp", "ratio")
        return f"\n{self.title}, {self.y_label}\n\n{table(columns, rows)}"


def doubled(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


def decode_by_context(ours: Workbench, model: LlamaModel, args: argparse.Namespace) -> Curve:
    points = []
    max_len = args.max_context + NUM_DECODED + 1
    with llama_workbench(model, num_seqs=1, max_len=max_len) as theirs:
        a, b, depth = ours.contexts(1, 0), theirs.contexts(1, 0), 0
        for context in doubled(512, args.max_context):
            a, b = (ours.extended(a, context - depth), theirs.extended(b, context - depth))
            depth = context
            points.append(decode_point(context, ours, a, theirs, b, args.repeats))
    return Curve("Decoding against context", "tokens of context", "ms a token", points)


def decode_by_batch(ours: Workbench, model: LlamaModel, args: argparse.Namespace) -> Curve:
    points = []
    for num_seqs in doubled(1, args.max_batch):
        with llama_workbench(model, num_seqs=num_seqs, max_len=256) as theirs:
            a, b = ours.contexts(num_seqs, 128), theirs.contexts(num_seqs, 128)
            points.append(decode_point(num_seqs, ours, a, theirs, b, args.repeats))
    return Curve("Decoding several sequences", "sequences", "ms a step", points)


def prompt_by_length(ours: Workbench, model: LlamaModel, args: argparse.Namespace) -> Curve:
    points = []
    with llama_workbench(model, num_seqs=1, max_len=args.max_prompt + 1) as theirs:
        a, b = ours.contexts(1, 0), theirs.contexts(1, 0)
        for length in doubled(512, args.max_prompt):
            times = in_turn(
                lambda length=length: ours.time_prompts(a, length),  # type: ignore[misc]
                lambda length=length: theirs.time_prompts(b, length),  # type: ignore[misc]
                repeats=args.repeats if length <= 2048 else 1,
                warm_up=length == 512,
            )
            points.append(Point(length, 1e3 * times.our_median, 1e3 * times.their_median))
    return Curve("Prompts", "tokens of prompt", "ms", points)


def decode_point(x: int, ours: Any, a: Any, theirs: Any, b: Any, repeats: int) -> Point:
    times = in_turn(
        lambda: ours.time_generation(a, NUM_DECODED),
        lambda: theirs.time_generation(b, NUM_DECODED),
        repeats=repeats,
    )
    scale = 1e3 / NUM_DECODED
    return Point(x, scale * times.our_median, scale * times.their_median)


CURVES = {"context": decode_by_context, "batch": decode_by_batch, "prompt": prompt_by_length}


def plot(curves: list[Curve], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(curves), 4), layout="constrained")
    figure.suptitle(title, fontsize=9)
    for axes, curve in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        xs = [point.x for point in curve.points]
        axes.plot(xs, [point.thalweg for point in curve.points], "o-", label="Thalweg")
        axes.plot(xs, [point.llama_cpp for point in curve.points], "s--", label="llama.cpp")
        axes.set(title=curve.title, xlabel=curve.x_label, ylabel=curve.y_label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs, [str(x) if x < 1024 else f"{x // 1024} k" for x in xs])
        if curve.title == "Prompts":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def measure(args: argparse.Namespace) -> tuple[str, list[Curve]]:
    model = LlamaModel(args.model, threads=args.threads)
    title = f"{args.model.name}; {heading(args.threads, 'llama-cpp-python')}"
    print(title, flush=True)
    curves = []
    options = {"threads": args.threads, "cache_memory": args.cache_memory}
    with contextlib.closing(model), LLM(args.model, max_num_seqs=args.max_batch, **options) as llm:
        ours = Workbench(llm.loaded)  # one for all: another would draw the same tokens again
        for name in args.curves:
            curves.append(CURVES[name](ours, model, args))
            print(curves[-1].text(), flush=True)
    return title, curves


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--max-context", type=int, default=32_768)
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--max-prompt", type=int, default=16_384)
    parser.add_argument("--cache-memory", type=int, default=5 << 30, help="ours, in bytes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--replot", type=Path, metavar="FILE", help="figures of --json")
    args = parser.parse_args()
    if args.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib")
    if args.replot:
        saved = json.loads(args.replot.read_text())
        title = saved["title"]
        curves = [
            Curve(**(each | {"points": [Point(**p) for p in each["points"]]}))
            for each in saved["curves"]
        ]
    elif args.model:
        title, curves = measure(args)
    else:
        parser.error("a MODEL or --replot is needed")
    if args.json:
        figures = {"title": title, "curves": [asdict(curve) for curve in curves]}
        args.json.write_text(json.dumps(figures, indent=1))
    if args.plot:
        plot(curves, args.plot, title)


if __name__ == "__main__":
    main()
