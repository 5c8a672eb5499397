"""Many streaming clients, some of which go away: is every answer whole, and is nothing left?

    python benchmarks/streaming_clients.py --clients 64 --seconds 600

Each of the questions is asked alone before. Then every client asks one after another at random,
streamed; one call in three is dropped at a random piece. An answer that was not dropped must be,
piece by piece, what it was alone. Afterwards nothing may run, wait or hold memory but the prefix
cache, and the server must be idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import httpx

from served import served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

QUESTIONS = (
    "Remember these pairs:\n- river: 4711\n- stone: 29\n- bridge: 830\n\nWhat is stone?",
    "What is 17 plus 25?",
    "Hello!",
    "Tell me about Thalweg.",
)
NUM_TOKENS = range(16, 97)


@dataclass(frozen=True)
class Known:
    """A call, and what it gives."""

    body: dict[str, Any]
    text: str
    num_tokens: int


@dataclass
class Seen:
    num_whole: int = 0
    num_dropped: int = 0
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Seconds from asking to the first piece of text."""
    gaps: list[float] = field(default_factory=list)
    """Seconds between the pieces of an answer."""


def questions(model: str, random: Random) -> list[dict[str, Any]]:
    """Greedy and drawn, with and without the end that the model would make."""
    return [
        {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "temperature": temperature,
            "seed": random.randrange(1 << 30),
            "max_tokens": random.choice(NUM_TOKENS),
            "ignore_eos": temperature > 0,
        }
        for text in QUESTIONS
        for temperature in (0, 0, 1, 1)
    ]


async def ask_alone(client: httpx.AsyncClient, body: dict[str, Any]) -> Known:
    response = await client.post("/v1/chat/completions", json=body)
    answer = response.raise_for_status().json()
    text = answer["choices"][0]["message"]["content"]
    return Known(body, text, answer["usage"]["completion_tokens"])


async def pieces(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


async def ask_streamed(
    client: httpx.AsyncClient, known: Known, seen: Seen, *, drop_at: int | None
) -> None:
    """`drop_at`: the piece at which the client goes away."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = {**known.body, **options}
    text, times = "", [time.monotonic()]
    reasons, usage = [], None
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        numbers = count()
        async for chunk in pieces(response):
            if next(numbers) == drop_at:
                seen.num_dropped += 1
                return
            for choice in chunk.get("choices", ()):
                if content := choice["delta"].get("content"):
                    text += content
                    times.append(time.monotonic())
                reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
            usage = chunk.get("usage") or usage
    seen.num_whole += 1
    seen.first += [b - a for a, b in pairwise(times[:2])]
    seen.gaps += [b - a for a, b in pairwise(times[1:])]
    if text != known.text or len(reasons) != 1:
        seen.wrong.append(f"{known.body['messages']}: {text!r} {reasons} is not {known.text!r}")
    elif usage is None or usage["completion_tokens"] != known.num_tokens:
        seen.wrong.append(f"{known.body['messages']}: {usage} is not {known.num_tokens} tokens")


async def run_clients(
    url: str, known: Sequence[Known], *, num_clients: int, goes_on: Callable[[int], bool]
) -> Seen:
    """`goes_on(n)`: whether a client that has made n calls makes another."""
    seen = Seen()

    async def run(number: int) -> None:
        random = Random(number)
        async with httpx.AsyncClient(base_url=url, timeout=None) as client:
            for num_calls in count():
                if not goes_on(num_calls):
                    return
                question = random.choice(known)
                drops = random.random() < 1 / 3
                drop_at = random.randrange(question.num_tokens) if drops else None
                await ask_streamed(client, question, seen, drop_at=drop_at)

    async with asyncio.TaskGroup() as group:
        for number in range(num_clients):
            group.create_task(run(number))
    return seen


async def learn(url: str, bodies: Sequence[dict[str, Any]]) -> list[Known]:
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        return [await ask_alone(client, body) for body in bodies]


def until_idle(url: str) -> dict[str, Any]:
    """The engine's state once nothing runs and nothing waits."""
    while True:
        state: dict[str, Any] = httpx.get(f"{url}/v1/engine", timeout=600).json()
        if not (state["running"] or state["waiting"]):
            return state
        time.sleep(0.05)


def held(state: dict[str, Any]) -> tuple[int, int]:
    """Blocks and slots that are in use and not the prefix cache's."""
    blocks, slots = state["blocks"], state["slots"]
    return blocks["num_used"] - blocks["num_cached"], slots["num_used"] - slots["num_cached"]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", help="default: the bundled one")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    args = parser.parse_args()
    with served(*([args.model] if args.model else []), "--memory", "1GiB") as server:
        known = asyncio.run(learn(server.url, questions(server.model, Random(0))))
        warm = time.monotonic() + args.seconds / 10
        many = {"num_clients": args.clients}
        asyncio.run(
            run_clients(server.url, known, goes_on=lambda _: time.monotonic() < warm, **many)
        )
        until_idle(server.url)
        before = server.resident_bytes()
        end = time.monotonic() + args.seconds
        seen = asyncio.run(
            run_clients(server.url, known, goes_on=lambda _: time.monotonic() < end, **many)
        )
        state = until_idle(server.url)
        grown = server.resident_bytes() - before
        share = server.idle_share(5)
    print(f"{seen.num_whole} answers whole, {seen.num_dropped} dropped, {len(seen.wrong)} wrong")
    print(f"blocks and slots held by nobody's answer: {held(state)}; memory {grown >> 10:+} KiB")
    for name, values in (("first text", seen.first), ("between pieces", seen.gaps)):
        p50, p95 = statistics.median(values), quantile(values, 0.95)
        print(f"{name}: median {1000 * p50:.1f} ms, p95 {1000 * p95:.1f} ms")
    print(f"idle afterwards: {100 * share:.2f} % of a core")
    for each in seen.wrong[:10]:
        print(each)
    raise SystemExit(bool(seen.wrong or any(held(state)) or share >= 0.03))


if __name__ == "__main__":
    main()
