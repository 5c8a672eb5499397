"""S1, S2: speculation and the prefix cache together give the bits that neither gives, and hits."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from drafters import KnowsAnswers
from harness import SMALL, exact_kernels, tiny
from serving import Drafting, Result, Serving, Sizes, make_request
from thalweg.config import SamplingParams
from thalweg.scheduler.reuse import ReusePolicy
from thalweg.speculative.lookup import LookupDrafter

if TYPE_CHECKING:
    from thalweg.engine.outputs import RequestOutput
    from thalweg.text import Tokenizer

BLOCK = 4
ROUNDS, TURNS = 10, 6
LENGTHS = (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK + 1)
"""Of the prefix that all chats share."""
TIGHT = Sizes(num_blocks=40, num_slots=9, max_num_seqs=2, max_num_batched_tokens=10)


class Chats:
    """Engines with and without drafts and cache; each is asked the same."""

    def __init__(self, tokenizer: Tokenizer, sizes: Sizes | None, num_drafts: int) -> None:
        self.model = tiny(SMALL, exact_kernels()[-1], block_size=BLOCK)
        self.knows = KnowsAnswers([], 0.7, varies=True)
        nobody = Drafting(LookupDrafter(), 0)
        draftings = (
            nobody,
            Drafting(LookupDrafter(), num_drafts),
            Drafting(self.knows, num_drafts),
        )
        self.engines = [
            Serving(self.model, tokenizer, sizes, policy=ReusePolicy(enabled), drafting=drafting)
            for enabled, drafting in itertools.product((False, True), draftings)
        ]
        """The first is plain, the fourth has the cache alone."""

    def ask(self, name: str, prompt: list[int], params: SamplingParams) -> list[RequestOutput]:
        """From each; all answers are the same. Drafts are of the plain one's answer."""
        outputs = []
        for engine in self.engines:
            engine.engine.add_request(make_request(name, prompt, params, engine))
            while engine.engine.has_work:
                engine.step()
            outputs.append(engine.outputs[name])
            self.knows.texts = [[*prompt, *outputs[0].outputs[0].token_ids]]
        assert all(Result.of(output) == Result.of(outputs[0]) for output in outputs)
        return outputs


@pytest.mark.parametrize(
    ("length", "sizes"),
    [*((length, None) for length in LENGTHS), (BLOCK + 1, TIGHT)],
    ids=[*map(str, LENGTHS), "tight"],
)
def test_neither_changes_what_the_other_gives(
    small_tokenizer: Tokenizer, length: int, sizes: Sizes | None
) -> None:
    """S1: chats of six turns behind one prefix, ten of them."""
    chats = Chats(small_tokenizer, sizes, num_drafts=3)
    prefix = random.Random(length).choices(range(SMALL.vocab_size), k=length)
    num_cached = 0
    for round_ in range(ROUNDS):
        rng = random.Random(100 * length + round_)
        history = list(prefix)
        for turn in range(TURNS):
            history += rng.choices(range(SMALL.vocab_size), k=rng.randint(1, 7))
            params = SamplingParams(
                max_tokens=rng.randint(1, 8), temperature=round_ % 2, seed=round_, logprobs=1
            )
            outputs = chats.ask(f"{round_}-{turn}", history, params)
            history += outputs[0].outputs[0].token_ids
            num_cached += outputs[-1].num_cached_tokens
    assert num_cached > 0 and chats.engines[-1].speculation.counts.num_kept > 0
    for engine in chats.engines:
        engine.assert_empty()


@pytest.mark.parametrize("length", [BLOCK + 1, 17, 40])
def test_a_prompt_that_is_known_is_a_hit_with_drafts_too(
    small_tokenizer: Tokenizer, length: int
) -> None:
    """S2: the same prompt twice, and the next turn."""
    chats = Chats(small_tokenizer, None, num_drafts=4)
    prompt = random.Random(length).choices(range(SMALL.vocab_size), k=length)
    params = SamplingParams(max_tokens=9, temperature=0, ignore_eos=True)
    first = chats.ask("first", prompt, params)
    again = chats.ask("again", prompt, params)
    answer = list(first[0].outputs[0].token_ids)
    later = chats.ask("later", [*prompt, *answer, 3, 5], params)
    for one, two, three in zip(first[3:], again[3:], later[3:], strict=True):
        assert len(prompt) - two.num_cached_tokens <= BLOCK
        assert two.num_computed_tokens < one.num_computed_tokens
        assert len(three.prompt_token_ids) - three.num_cached_tokens <= 2 + BLOCK
