"""The short form of `benchmarks/streaming_clients.py`: clients that go away at any piece."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from streaming_clients import held, learn, questions, run_clients, until_idle

if TYPE_CHECKING:
    from server_model import Running


def test_whoever_stays_gets_every_piece_once(server: Running) -> None:
    asked = {"max_tokens": 16, "enable_thinking": False, "ignore_eos": True}
    bodies = [{**each, **asked} for each in questions("tiny", Random(0))[::3]]
    known = asyncio.run(learn(server.url, bodies))
    seen = asyncio.run(run_clients(server.url, known, num_clients=12, goes_on=lambda n: n < 3))
    assert seen.wrong == []
    assert seen.num_whole > 12 and seen.num_dropped > 3
    assert seen.num_whole + seen.num_dropped == 36
    assert held(until_idle(server.url)) == (0, 0)
