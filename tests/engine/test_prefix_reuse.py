"""What the prefix cache saves, and that it changes nothing: on kernels whose bits are promised
every answer is compared with `==` with that of a fresh engine without a cache.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from harness import SMALL, exact_kernels, tiny
from serving import Result, Serving, Sizes, make_request
from thalweg.config import RequestOptions, SamplingParams
from thalweg.scheduler.reuse import ReusePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.outputs import RequestOutput
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

BLOCK = 4
INTERVAL = 16
VOCAB = SMALL.vocab_size
OFF = ReusePolicy(enabled=False)


class Chat:
    """An engine with a cache, whose every output is compared with a cold one's."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        sizes: Sizes | None = None,
        *,
        block_size: int = BLOCK,
        interval: int = INTERVAL,
    ) -> None:
        self.tokenizer = tokenizer
        self.model = tiny(SMALL, exact_kernels()[-1], block_size=block_size)
        policy = ReusePolicy(snapshot_interval=interval)
        self.warm = Serving(self.model, tokenizer, sizes, policy=policy)
        self.num_asked = 0

    def ask(
        self,
        prompt: Sequence[int],
        *,
        hints: tuple[int, ...] = (),
        params: SamplingParams | None = None,
    ) -> RequestOutput:
        (output,) = self.ask_together([prompt], hints=hints, params=params)
        return output

    def ask_together(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        hints: tuple[int, ...] = (),
        params: SamplingParams | None = None,
    ) -> list[RequestOutput]:
        params = params or SamplingParams(max_tokens=3, temperature=0, logprobs=2)
        names = []
        for prompt in prompts:
            name = str(self.num_asked)
            self.num_asked += 1
            names.append(name)
            self.warm.engine.add_request(self.request(name, prompt, params, hints))
        while self.warm.engine.has_work:
            self.warm.step()
        outputs = [self.warm.outputs[name] for name in names]
        for prompt, output in zip(prompts, outputs, strict=True):
            assert Result.of(output) == self.cold(prompt, output, params)
        return outputs

    def request(
        self, name: str, prompt: Sequence[int], params: SamplingParams, hints: tuple[int, ...]
    ) -> Request:
        return replace(make_request(name, prompt, params, self.warm), snapshot_hints=hints)

    def cold(self, prompt: Sequence[int], output: RequestOutput, params: SamplingParams) -> Result:
        serving = Serving(self.model, self.tokenizer, policy=OFF)
        request = make_request("cold", prompt, replace(params, seed=output.seed), serving)
        return serving.run([request])["cold"]

    def computed(self, output: RequestOutput) -> int:
        """Prompt tokens that were computed."""
        return len(output.prompt_token_ids) - output.num_cached_tokens


@pytest.fixture
def chat(small_tokenizer: Tokenizer) -> Chat:
    return Chat(small_tokenizer)


def tokens(num: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=num)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 15, 16, 17, 33])
def test_the_same_prompt_twice_computes_at_most_a_block(chat: Chat, length: int) -> None:
    """S3, S16: from the first block on, whatever the length."""
    prompt = tokens(length)
    assert chat.ask(prompt).num_cached_tokens == 0
    again = chat.ask(prompt)
    assert chat.computed(again) <= BLOCK
    assert (again.cache_miss is None) == (length > BLOCK)


def test_an_extended_prompt_computes_what_is_new_and_at_most_a_block(chat: Chat) -> None:
    prompt = tokens(21)
    chat.ask(prompt)
    assert chat.computed(chat.ask(prompt + tokens(10, 1))) <= 10 + BLOCK
    assert chat.ask(prompt[:18]).num_cached_tokens == 16, "S16: also a shorter one"


def test_the_first_branch_loses_up_to_the_interval_the_second_a_block(chat: Chat) -> None:
    """S11: a state cannot be cut back, so the first branch starts at a snapshot before it."""
    prompt = tokens(60)
    chat.ask(prompt)
    branch = chat.ask(prompt[:43] + tokens(10, 1))
    assert 43 - INTERVAL <= branch.num_cached_tokens <= 43
    assert branch.cache_miss is not None and "no snapshot" in branch.cache_miss
    second = chat.ask(prompt[:43] + tokens(10, 2))
    assert second.num_cached_tokens == 40
    assert chat.computed(chat.ask(prompt)) <= BLOCK, "and the original is as warm as before"


def test_thirty_turns_compute_only_what_is_new(chat: Chat) -> None:
    """S9, S10: the answer of a turn is part of the next prompt, and known."""
    history: list[int] = []
    for turn in range(30):
        new = tokens(random.Random(turn).randint(1, 9), turn)
        output = chat.ask(history + new, hints=(len(history) + len(new) - 1,))
        assert chat.computed(output) <= len(new) + BLOCK, f"turn {turn}"
        history += [*new, *output.outputs[0].token_ids]


def test_fifty_questions_behind_one_system_prompt_compute_it_once(chat: Chat) -> None:
    """S17: none is empty, each has its own cold answer."""
    system = tokens(40)
    chat.ask(system + tokens(3, 99), hints=(40,))
    outputs = chat.ask_together([system + tokens(1 + i % 5, i) for i in range(50)])
    assert all(output.num_cached_tokens == 40 for output in outputs)
    assert all(output.outputs[0].token_ids for output in outputs)


def test_a_snapshot_is_what_it_was_after_serving_five_answers(chat: Chat) -> None:
    """S14: nobody writes where somebody else reads."""
    prompt = tokens(17)
    chat.ask(prompt)

    def states() -> list[torch.Tensor]:
        nodes = chat.warm.scheduler.prefix_cache._nodes.values()
        slots = sorted(node.slot for node in nodes if node.slot)
        layers = chat.warm.storage.state
        return [tensor[slots].clone() for layer in layers for tensor in layer.values()]

    chat.ask(prompt)
    before = states()
    for i in range(5):
        chat.ask(prompt, params=SamplingParams(max_tokens=3, seed=i))
    for one, other in zip(before, states(), strict=True):
        assert torch.equal(one, other[: len(one)])


def test_without_snapshots_kv_alone_saves_nothing_but_harms_nothing(chat: Chat) -> None:
    """S15, S28: the deepest node with both is what counts."""
    prompt = tokens(30)
    chat.ask(prompt)
    chat.warm.scheduler.prefix_cache.evict(0, chat.warm.caches.slots.size)
    output = chat.ask(prompt)
    assert output.num_cached_tokens == 0 and "evicted" in str(output.cache_miss)
    assert chat.computed(chat.ask(prompt)) <= BLOCK


def test_whatever_is_given_up_between_requests_the_rest_serves(chat: Chat) -> None:
    """S28: now blocks, now snapshots, now both are gone from under a prompt that grows."""
    rng = random.Random(28)
    cache, history = chat.warm.scheduler.prefix_cache, tokens(9)
    num_cached = 0
    for turn in range(40):
        history += tokens(rng.randint(1, 5), turn)
        output = chat.ask(history, params=SamplingParams(max_tokens=2, seed=turn))
        num_cached += output.num_cached_tokens
        cache.evict(rng.choice([0, 0, 1, 5]), rng.choice([0, 0, 1, 3]))
    assert num_cached > 40


def test_prompt_logprobs_read_no_cache_but_fill_it(chat: Chat) -> None:
    prompt = tokens(21)
    chat.ask(prompt)
    scored = chat.ask(prompt, params=SamplingParams(max_tokens=2, seed=1, prompt_logprobs=1))
    assert scored.num_cached_tokens == 0 and "prompt_logprobs" in str(scored.cache_miss)
    fresh = tokens(21, 5)
    chat.ask(fresh, params=SamplingParams(max_tokens=2, seed=1, prompt_logprobs=0))
    assert chat.computed(chat.ask(fresh)) <= BLOCK


def test_several_answers_continue_one_cached_prompt(chat: Chat) -> None:
    prompt = tokens(22)
    chat.ask(prompt)
    output = chat.ask(prompt, params=SamplingParams(max_tokens=5, n=3, seed=3, logprobs=0))
    assert chat.computed(output) <= BLOCK


def test_an_interrupted_request_leaves_its_prefix(chat: Chat) -> None:
    prompt = tokens(40)
    params = SamplingParams(max_tokens=50, temperature=0)
    chat.warm.engine.add_request(chat.request("stopped", prompt, params, ()))
    for _ in range(3):
        chat.warm.step()
    chat.warm.engine.cancel("stopped")
    assert chat.computed(chat.ask(prompt)) <= BLOCK


@pytest.mark.parametrize("sizes", [Sizes(26, 7, 3, 16), Sizes(40, 12, 6, 7), Sizes(26, 5, 3, 64)])
def test_many_conversations_in_little_memory(small_tokenizer: Tokenizer, sizes: Sizes) -> None:
    """S26, M3: evictions and preemptions cost time only."""
    chat = Chat(small_tokenizer, sizes)
    histories = [tokens(random.Random(i).randint(1, 30), i) for i in range(6)]
    for turn in range(3):
        outputs = chat.ask_together(histories, params=SamplingParams(max_tokens=6, logprobs=1))
        for i, output in enumerate(outputs):
            histories[i] += [*output.outputs[0].token_ids, *tokens(3, 50 * turn + i)]
    chat.warm.assert_empty()


def test_why_not_more_is_said(chat: Chat) -> None:
    assert "too short" in str(chat.ask(tokens(3, 8)).cache_miss)
    assert "nothing known" in str(chat.ask(tokens(30)).cache_miss)
    one = SamplingParams(max_tokens=1, temperature=0)
    longer = [*tokens(28, 4), *tokens(9, 3)]
    chat.ask(longer[:28], params=one)
    assert "new: nothing known goes on after token 28" in str(chat.ask(longer).cache_miss)
    other = [*tokens(30)[:18], (tokens(30)[18] + 1) % VOCAB, *tokens(8, 7)]
    assert "prompt diverges at token 18:" in str(chat.ask(other).cache_miss)


def test_what_was_given_up_for_memory_is_called_evicted(chat: Chat) -> None:
    prompt = tokens(30)
    chat.ask(prompt)
    cache = chat.warm.scheduler.prefix_cache
    cache.evict(0, chat.warm.caches.slots.size)
    assert "evicted: KV is known up to token 28" in str(chat.ask(prompt).cache_miss)
    cache.evict(chat.warm.caches.blocks.size, 0)
    assert chat.ask(prompt).cache_miss == "evicted: tokens 0 to 27 were known"
    assert chat.ask(prompt).cache_miss is None


def test_a_salt_learns_nothing_of_what_others_asked(chat: Chat) -> None:
    """S18: not even where a prompt leaves theirs."""
    prompt = tokens(30)
    chat.ask(prompt)
    params = SamplingParams(max_tokens=1, seed=0)
    request = chat.request("salted", [*prompt[:7], 9, *prompt[8:]], params, ())
    chat.warm.engine.add_request(replace(request, options=RequestOptions(cache_salt="mine")))
    while chat.warm.engine.has_work:
        chat.warm.step()
    reason = chat.warm.outputs["salted"].cache_miss
    assert reason == "new: nothing known begins like this prompt"


@pytest.mark.parametrize(("block_size", "interval"), [(4, 16), (16, 4), (4, 4), (2, 30)])
def test_hits_at_every_depth_whatever_the_grains(
    small_tokenizer: Tokenizer, block_size: int, interval: int
) -> None:
    """S4: blocks and snapshots have different grains, and no index of one is used for the other."""
    chat = Chat(small_tokenizer, block_size=block_size, interval=interval)
    prompt = tokens(70)
    chat.ask(prompt)
    grain = -(-interval // block_size) * block_size
    for i, depth in enumerate((1, 17, 33, 50, 69)):
        output = chat.ask([*prompt[:depth], *tokens(5, 10 + i)])
        assert output.num_cached_tokens >= depth // grain * grain
        assert output.num_cached_tokens <= depth // block_size * block_size


@pytest.mark.parametrize("length", [1, 15, 16, 17])
def test_the_very_first_request_of_an_engine(small_tokenizer: Tokenizer, length: int) -> None:
    """S5: shorter than a block, exactly one, one more."""
    chat = Chat(small_tokenizer, block_size=16)
    assert chat.ask(tokens(length)).num_cached_tokens == 0


def test_what_comes_after_an_insertion_is_not_reused(chat: Chat) -> None:
    """S12: the tokens are known, but not behind this prefix."""
    prompt = tokens(60)
    chat.ask(prompt, hints=(20,))
    inserted = chat.ask([*prompt[:20], 3, *prompt[20:]])
    assert inserted.num_cached_tokens == 20


def test_a_single_chunk_prompt_serves_longer_and_shorter_ones(chat: Chat) -> None:
    """S16"""
    prompt = tokens(23)
    chat.ask(prompt)
    assert chat.ask(prompt[:21]).num_cached_tokens == 20
    assert chat.ask([*prompt, *tokens(9, 1)]).num_cached_tokens >= 20


def test_snapshots_of_many_conversations_do_not_drive_out_live_ones(
    small_tokenizer: Tokenizer,
) -> None:
    """S26: 8 conversations of 40 turns in memory for little more than their prefixes."""
    chat = Chat(small_tokenizer, Sizes(num_blocks=420, num_slots=40, max_num_seqs=4))
    histories = [tokens(8, i) for i in range(8)]
    rates = []
    for turn in range(40):
        known = computed = 0
        for i, history in enumerate(histories):
            new = tokens(2, 100 * turn + i)
            request = chat.request(
                f"{turn}-{i}",
                [*history, *new],
                SamplingParams(max_tokens=2, temperature=0),
                (len(history) + 1,),
            )
            chat.warm.engine.add_request(request)
            while chat.warm.engine.has_work:
                chat.warm.step()
            output = chat.warm.outputs[request.id]
            known += output.num_cached_tokens
            computed += chat.computed(output)
            histories[i] = [*history, *new, *output.outputs[0].token_ids]
        rates.append(known / (known + computed))
    assert sum(rates[-10:]) / 10 >= sum(rates[1:11]) / 10 - 0.1
    assert min(rates[-10:]) > 0.8
    chat.warm.assert_empty()


def test_the_branch_table(small_tokenizer: Tokenizer) -> None:
    """A prompt at the default grains: what each kind of next prompt computes."""
    chat = Chat(small_tokenizer, block_size=16, interval=64)
    prompt = tokens(450)
    one = SamplingParams(max_tokens=1, temperature=0)

    def computed(prompt: Sequence[int]) -> int:
        return chat.computed(chat.ask(prompt, params=one))

    assert computed(prompt) == 450
    assert computed(prompt) <= 16
    assert computed([*prompt, *tokens(40, 1)]) <= 40 + 16
    assert computed([*prompt[:300], *tokens(20, 2)]) <= 20 + 64
    assert computed([*prompt[:300], *tokens(20, 3)]) <= 20 + 16
    assert computed(prompt) <= 16


def test_a_prefix_in_use_outlives_what_passes_by(small_tokenizer: Tokenizer) -> None:
    """S26: eight users behind one prefix, again and again, and slots for them and little more."""
    sizes = Sizes(num_blocks=200, num_slots=12, max_num_seqs=8)
    chat = Chat(small_tokenizer, sizes, block_size=16, interval=64)
    prefix = tokens(200)
    chat.ask(prefix + tokens(20, 1))
    for turn in range(4):
        users = [prefix + tokens(20, 100 * turn + i) for i in range(2, 10)]
        outputs = chat.ask_together(users)
        assert all(output.num_cached_tokens >= 176 for output in outputs)


def test_branches_in_little_memory_leave_the_original(small_tokenizer: Tokenizer) -> None:
    """A prompt whose snapshot was used is worth more than another's at intervals."""
    sizes = Sizes(num_blocks=200, num_slots=12, max_num_seqs=2)
    chat = Chat(small_tokenizer, sizes, block_size=16, interval=64)
    prompt = tokens(450)
    one = SamplingParams(max_tokens=1, temperature=0)
    for each in (prompt, prompt, [*prompt, *tokens(40, 1)], [*prompt[:300], *tokens(150, 2)]):
        chat.ask(each, params=one)
    assert chat.ask(prompt, params=one).num_cached_tokens == 448
    assert chat.ask([*prompt[:300], *tokens(150, 3)], params=one).num_cached_tokens == 288
