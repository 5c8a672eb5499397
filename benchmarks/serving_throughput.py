"""Many requests at once: Thalweg's `LLM` beside llama.cpp with as many slots.

    python benchmarks/serving_throughput.py MODEL.gguf --threads 2 --slots 8 16

Distinct prompts of 128 to 512 random tokens, 64 new ones each, all queued at the start; llama.cpp
gets continuous batching as its server does it (`llama_cpp_server.py`). Both are timed in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

from in_turn import InTurn, heading, in_turn, table
from llama_cpp_peer import LlamaModel, LlamaSession
from llama_cpp_server import Answer, serve
from thalweg import LLM, SamplingParams

LENGTHS = range(128, 513)
NUM_NEW = 64


def measure(path: Path, num_slots: int, args: argparse.Namespace) -> InTurn:
    randoms = Random(0), Random(0)  # the same prompts for both, new ones each time
    params = SamplingParams(temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
    options = {"max_num_seqs": num_slots, "cache_memory": args.cache_memory}
    model = LlamaModel(path, threads=args.threads)
    max_len = LENGTHS.stop + NUM_NEW
    with (
        contextlib.closing(model),
        LlamaSession(model, num_seqs=num_slots, max_len=max_len) as session,
        LLM(path, threads=args.threads, **options) as llm,
    ):
        if llm.loaded.caches.max_num_seqs < num_slots:
            raise SystemExit(f"--cache-memory {args.cache_memory} is too small for {num_slots}")

        def ours() -> float:
            prompts = draw(randoms[0], args.requests, model.vocab_size)
            start = time.perf_counter()
            outputs = llm.generate(prompts, params)
            seconds = time.perf_counter() - start
            assert all(output.num_generated == NUM_NEW for output in outputs)
            return seconds

        def theirs() -> float:
            prompts = draw(randoms[1], args.requests, model.vocab_size)
            start = time.perf_counter()
            serve(session, [Answer(each, NUM_NEW) for each in prompts], num_slots=num_slots)
            return time.perf_counter() - start

        return in_turn(ours, theirs, repeats=args.repeats, warm_up=args.warm_up)


def draw(random: Random, num: int, vocab_size: int) -> list[list[int]]:
    lengths = [random.choice(LENGTHS) for _ in range(num)]
    return [[random.randrange(vocab_size) for _ in range(length)] for length in lengths]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-up", action="store_true", help="run each once before, untimed")
    parser.add_argument("--cache-memory", type=int, default=3 << 30, help="ours, in bytes")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = {slots: measure(args.model, slots, args) for slots in args.slots}
    if args.json:
        print(json.dumps({slots: asdict(each) for slots, each in found.items()}, indent=1))
        return
    print(heading(args.threads, "llama-cpp-python"))
    print(f"{args.model.name}, {args.requests} requests, new tokens/s\n")
    num_new = args.requests * NUM_NEW
    rows = [
        (
            f"{slots} at once",
            f"{num_new / each.our_median:.1f}",
            f"{num_new / each.their_median:.1f}",
            f"{each.ratio:.2f}",
        )
        for slots, each in found.items()
    ]
    print(table(("", "thalweg", "llama.cpp", "ratio"), rows))


if __name__ == "__main__":
    main()
