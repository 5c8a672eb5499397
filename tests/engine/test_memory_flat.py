"""M6: an engine that runs takes no more memory than one that has begun."""

from __future__ import annotations

import gc
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import SMALL, exact_kernels, tiny
from serving import Serving, Sizes, make_request
from thalweg.config import SamplingParams

if TYPE_CHECKING:
    from thalweg.text import Tokenizer

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "3600"))
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def serving(tokenizer: Tokenizer, sizes: Sizes) -> Serving:
    return Serving(tiny(SMALL, exact_kernels()[-1], block_size=4), tokenizer, sizes)


def test_3000_tokens_of_answers_cost_no_memory(small_tokenizer: Tokenizer) -> None:
    one = serving(small_tokenizer, Sizes(num_blocks=900, num_slots=40))
    params = SamplingParams(max_tokens=380, ignore_eos=True, temperature=0)
    for i in range(8):
        one.engine.add_request(make_request(f"{i}", [i + 1, 5], params, one))
    for _ in range(30):
        one.step()
    before = resident()
    while one.engine.has_work:
        one.step()
    assert one.engine.stats().num_generated_tokens == 8 * 380
    assert resident() - before < 3 << 20


def test_state_pools_hold_nothing_but_their_rows(small_tokenizer: Tokenizer) -> None:
    """A slice of an activation would keep all of it alive."""
    one = serving(small_tokenizer, Sizes())
    one.run([make_request("r", list(range(32)) * 6, SamplingParams(max_tokens=3, seed=0), one)])
    for layer in one.storage.layers:
        for tensor in layer.values():
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


@pytest.mark.slow
def test_an_hour_with_up_to_300_at_once_on_memory_for_12(small_tokenizer: Tokenizer) -> None:
    """`SOAK_SECONDS` makes it shorter."""
    sizes = Sizes(200, 30, 64, 64, num_host_blocks=40, num_host_slots=6)
    one = serving(small_tokenizer, sizes)
    rng = random.Random(0)
    end = time.monotonic() + SOAK_SECONDS
    settled: int | None = None
    num_asked = num_ended = 0
    going: set[str] = set()
    while going or time.monotonic() < end:
        while len(going) < 300 and time.monotonic() < end:
            params = SamplingParams(
                max_tokens=rng.randint(1, 40), n=rng.choice([1, 1, 1, 2]), seed=num_asked
            )
            prompt = rng.choices(range(SMALL.vocab_size), k=rng.randint(1, 60))
            one.engine.add_request(make_request(str(num_asked), prompt, params, one))
            going.add(str(num_asked))
            num_asked += 1
        if rng.random() < 0.05:
            request_id = rng.choice(sorted(going))
            one.engine.cancel(request_id)
            going.remove(request_id)
            num_ended += 1
        for output in one.engine.step().finished:
            going.remove(output.request_id)
            num_ended += 1
        if settled is None and num_ended > 500:
            settled = resident()
    assert num_ended == num_asked
    one.assert_empty()
    assert settled is not None and resident() - settled < 8 << 20
