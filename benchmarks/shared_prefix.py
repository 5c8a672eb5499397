"""Eight users who share a prefix, and one who branches off it: Thalweg beside llama.cpp.

    python benchmarks/shared_prefix.py MODEL.gguf --threads 2

Each user has the same 600 tokens and 20 of their own, and gets 16; the prefix was seen before.
llama.cpp appears twice: with slots that share nothing, as in its server, and at the best its API
allows, the prefix computed before and copied to every slot of a unified KV cache. The second table
is what the prefix cache knows of one prompt of 600 tokens and its branches.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from pathlib import Path
from random import Random

from in_turn import heading, table
from llama_cpp_peer import LlamaModel, LlamaSession, prompt_rows
from llama_cpp_server import Answer, serve
from thalweg import LLM, SamplingParams

NUM_USERS, PREFIX, OWN, NUM_NEW = 8, 600, 20, 16
PREFIX_SLOT = NUM_USERS


def tokens(random: Random, num: int, vocab_size: int) -> list[int]:
    return [random.randrange(vocab_size) for _ in range(num)]


def users(random: Random, vocab_size: int) -> list[list[int]]:
    return [tokens(random, OWN, vocab_size) for _ in range(NUM_USERS)]


def ours(llm: LLM, prefix: list[int], tails: list[list[int]]) -> float:
    params = SamplingParams(temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
    start = time.perf_counter()
    llm.generate([prefix + tail for tail in tails], params)
    return time.perf_counter() - start


def nothing_shared(session: LlamaSession, prefix: list[int], tails: list[list[int]]) -> float:
    start = time.perf_counter()
    answers = [Answer(prefix + tail, NUM_NEW) for tail in tails]
    serve(session, answers, num_slots=NUM_USERS)
    return time.perf_counter() - start


def copied(session: LlamaSession, tails: list[list[int]]) -> float:
    start = time.perf_counter()
    for seq in range(NUM_USERS):
        session.remove(seq)
        session.copy(PREFIX_SLOT, seq)
    answers = [Answer(tail, NUM_NEW, start=PREFIX) for tail in tails]
    serve(session, answers, num_slots=NUM_USERS, clear=False)
    return time.perf_counter() - start


def branches(llm: LLM, random: Random, vocab_size: int) -> list[tuple[str, str, str, str]]:
    """(prompt, its tokens, those from the cache, seconds to the first token)"""
    original = tokens(random, PREFIX, vocab_size)
    half = PREFIX // 2
    prompts = {
        "first time": original,
        "repeated": original,
        "40 tokens more": original + tokens(random, 40, vocab_size),
        f"branch at {half}": original[:half] + tokens(random, half, vocab_size),
        "original again": original,
        f"second branch at {half}": original[:half] + tokens(random, half, vocab_size),
    }
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    rows = []
    for name, prompt in prompts.items():
        start = time.perf_counter()
        output = llm.generate(prompt, params)[0]
        seconds = time.perf_counter() - start
        rows.append((name, str(len(prompt)), str(output.num_cached_tokens), f"{seconds:.2f}"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cache-memory", type=int, default=500_000_000, help="ours, in bytes")
    args = parser.parse_args()
    random = Random(0)
    model = LlamaModel(args.model, threads=args.threads)
    size = model.vocab_size
    max_len = PREFIX + OWN + NUM_NEW
    options = {"cache_memory": args.cache_memory, "max_num_seqs": NUM_USERS}
    prefix = tokens(random, PREFIX, size)
    times: list[tuple[float, float, float]] = []
    with (
        contextlib.closing(model),
        LlamaSession(model, num_seqs=NUM_USERS, max_len=max_len) as apart,
        LlamaSession(model, num_seqs=NUM_USERS + 1, max_len=max_len, unified=True) as together,
        LLM(args.model, threads=args.threads, **options) as llm,
    ):
        llm.generate(prefix + tokens(random, OWN, size), SamplingParams(max_tokens=1))
        together.decode(prompt_rows(PREFIX_SLOT, prefix))
        for _ in range(args.repeats):
            tails = users(random, size)
            times.append(
                (
                    ours(llm, prefix, tails),
                    nothing_shared(apart, prefix, tails),
                    copied(together, tails),
                )
            )
        rows = branches(llm, random, size)
    print(heading(args.threads, "llama-cpp-python"))
    print(f"{args.model.name}, {NUM_USERS} users, median of {args.repeats}\n")
    names = ("thalweg", "llama.cpp, nothing shared", "llama.cpp, prefix copied")
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    print(table(("", "seconds"), [(n, f"{m:.2f}") for n, m in zip(names, medians, strict=True)]))
    print()
    print(table(("prompt", "tokens", "from the cache", "seconds to the first token"), rows))


if __name__ == "__main__":
    main()
