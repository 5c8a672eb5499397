"""Thalweg beside llama.cpp: the same GGUF file and threads, in turn, in one run.

    python benchmarks/compare_llama_cpp.py MODEL.gguf --threads 2

Ours is the whole engine with greedy sampling, theirs the low-level API of llama-cpp-python with
greedy sampling by numpy. Each case is timed A B A B ...; the table has medians of tokens per second
and their ratio. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from in_turn import InTurn, heading, in_turn, table
from llama_cpp_peer import LlamaModel, llama_workbench
from thalweg import LLM
from thalweg.engine.workbench import Workbench


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    kind: str
    """`prompt` or `decode`."""
    num_tokens: int
    num_seqs: int = 1
    depth: int = 0


CASES = (
    Case("prompt of 512", "prompt", 512),
    Case("decode, 1 sequence", "decode", 64),
    Case("decode, 8 sequences", "decode", 32, num_seqs=8),
    Case("decode, 1 sequence at depth 2048", "decode", 64, depth=2048),
    Case("decode, 8 sequences at depth 2048", "decode", 16, num_seqs=8, depth=2048),
)


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    thalweg: float
    """tokens/s of all sequences together, median"""
    llama_cpp: float
    ratio: float
    seconds: InTurn


def compare(ours: Workbench, model: LlamaModel, case: Case, *, repeats: int) -> Result:
    max_len = case.depth + case.num_tokens + 1
    with llama_workbench(model, num_seqs=case.num_seqs, max_len=max_len) as theirs:
        a = ours.contexts(case.num_seqs, case.depth)
        b = theirs.contexts(case.num_seqs, case.depth)
        if case.kind == "prompt":
            seconds = in_turn(
                lambda: ours.time_prompts(a, case.num_tokens),
                lambda: theirs.time_prompts(b, case.num_tokens),
                repeats=repeats,
            )
        else:
            seconds = in_turn(
                lambda: ours.time_generation(a, case.num_tokens),
                lambda: theirs.time_generation(b, case.num_tokens),
                repeats=repeats,
            )
    done = case.num_tokens * case.num_seqs
    return Result(
        case, done / seconds.our_median, done / seconds.their_median, seconds.ratio, seconds
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, help="GGUF files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    numbers = range(1, len(CASES) + 1)
    names = ", ".join(f"{n} {case.name}" for n, case in zip(numbers, CASES, strict=True))
    parser.add_argument(
        "--cases", type=int, nargs="+", choices=numbers, default=list(numbers), help=names
    )
    parser.add_argument("--cache-memory", type=int, default=2 << 30, help="ours, in bytes")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.json:
        print(heading(args.threads, "llama-cpp-python"), flush=True)
    found = {path.name: run(path, args) for path in args.models}
    if args.json:
        as_dicts = {name: [asdict(each) for each in results] for name, results in found.items()}
        print(json.dumps(as_dicts, indent=1))


def run(path: Path, args: argparse.Namespace) -> list[Result]:
    results = []
    model = LlamaModel(path, threads=args.threads)
    with (
        contextlib.closing(model),
        LLM(path, threads=args.threads, cache_memory=args.cache_memory, max_num_seqs=8) as llm,
    ):
        ours = Workbench(llm.loaded)  # one for all: another would draw the same tokens again
        for case in (CASES[number - 1] for number in args.cases):
            results.append(compare(ours, model, case, repeats=args.repeats))
            if not args.json:  # a table in the end is a table too late, on a long run
                print(f"  {case.name}: {results[-1].ratio:.2f}", flush=True)
    if not args.json:
        rows = [
            (r.case.name, f"{r.thalweg:.1f}", f"{r.llama_cpp:.1f}", f"{r.ratio:.2f}")
            for r in results
        ]
        print(f"\n{path.name}, tokens/s\n")
        print(table(("case", "thalweg", "llama.cpp", "ratio"), rows), flush=True)
    return results


if __name__ == "__main__":
    main()
