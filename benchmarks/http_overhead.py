"""What HTTP costs: clients of a server beside `LLM` with the same requests.

    python benchmarks/http_overhead.py MODEL.gguf --threads 2

Throughput: distinct prompts of random tokens, all streamed by clients that each ask one after
another, beside `LLM.generate` of the same prompts with as many running at once. First byte: one
short prompt at a time; the time to the first token's event beside that to the first token of
`LLM.stream`. Both engines are loaded, in two processes, and used in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from random import Random
from typing import Any

import httpx

from in_turn import heading, in_turn
from served import Served, served
from thalweg import LLM, SamplingParams

Prompts = list[list[int]]


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> float:
    """Seconds to the first token's event; all of the answer is read."""
    start, first = time.perf_counter(), 0.0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for _ in response.aiter_bytes():
            first = first or time.perf_counter() - start
    return first


async def ask_all(url: str, bodies: list[dict[str, Any]], *, num_clients: int) -> float:
    """Seconds for all of them."""
    waiting = iter(bodies)

    async def client_of_many() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None) as client:
            for body in waiting:
                await ask(client, body)

    start = time.perf_counter()
    await asyncio.gather(*(client_of_many() for _ in range(num_clients)))
    return time.perf_counter() - start


class Comparison:
    def __init__(self, llm: LLM, server: Served, args: argparse.Namespace) -> None:
        self.llm, self.server, self.args = llm, server, args
        self.randoms = Random(0), Random(0)  # the same prompts for both, new ones each time
        self.params = SamplingParams(temperature=0, max_tokens=args.new, ignore_eos=True)

    def throughput(self, repeats: int) -> float:
        """The server's share of `LLM`'s."""
        model, args = self.server.model, self.args

        def through_http() -> float:
            bodies = [
                {
                    "model": model,
                    "prompt": prompt,
                    "max_tokens": args.new,
                    "temperature": 0,
                    "ignore_eos": True,
                    "stream": True,
                }
                for prompt in self.prompts(0)
            ]
            return asyncio.run(ask_all(self.server.url, bodies, num_clients=args.clients))

        def directly() -> float:
            prompts = self.prompts(1)
            start = time.perf_counter()
            self.llm.generate(prompts, self.params)
            return time.perf_counter() - start

        found = in_turn(through_http, directly, repeats=repeats)
        num_new = args.requests * args.new
        print(
            f"{args.clients} clients, {args.requests} prompts of {args.prompt} tokens, {args.new} "
            f"new each: HTTP {num_new / found.our_median:.1f}, LLM "
            f"{num_new / found.their_median:.1f} tokens/s: {100 * found.ratio:.1f} %"
        )
        return found.ratio

    def first_byte(self, repeats: int) -> float:
        """Seconds more than with `LLM`, the median."""
        model = self.server.model
        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)

        async def through_http(prompt: list[int]) -> float:
            async with httpx.AsyncClient(base_url=self.server.url, timeout=None) as client:
                await client.get("/health")  # connected
                body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
                return await ask(client, {**body, "ignore_eos": True, "stream": True})

        def directly(prompt: list[int]) -> float:
            start = time.perf_counter()
            next(iter(self.llm.stream(prompt, params)))
            return time.perf_counter() - start

        pairs = []
        for _ in range(repeats + 3):
            prompt = draw(self.randoms[0], 16)
            pairs.append((asyncio.run(through_http(prompt)), directly(prompt)))
        http, direct = (statistics.median(each) for each in zip(*pairs[3:], strict=True))
        print(
            f"first token of a prompt of 16: HTTP {1000 * http:.1f} ms, LLM {1000 * direct:.1f} "
            f"ms: {1000 * (http - direct):+.1f} ms"
        )
        return http - direct

    def prompts(self, which: int) -> Prompts:
        return [draw(self.randoms[which], self.args.prompt) for _ in range(self.args.requests)]


def draw(random: Random, length: int) -> list[int]:
    return [random.randrange(2000) for _ in range(length)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    flags = {"--threads": args.threads, "--max-num-seqs": args.clients, "--cache-memory": "256MiB"}
    words = [str(word) for pair in flags.items() for word in pair]
    options: dict[str, Any] = {"threads": args.threads, "max_num_seqs": args.clients}
    with (
        served(args.model, *words) as server,
        LLM(args.model, cache_memory=256 << 20, **options) as llm,
    ):
        print(heading(args.threads, "uvicorn", "fastapi"))
        comparison = Comparison(llm, server, args)
        share = comparison.throughput(args.repeats)
        seconds = comparison.first_byte(10 * args.repeats)
    raise SystemExit(share < 0.95 or seconds > 0.010)


if __name__ == "__main__":
    main()
