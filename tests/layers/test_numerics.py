"""Whole tiny models: how a prompt is cut changes no bit, and numbers stay wide."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from harness import (
    MODELS,
    SMALL,
    TH,
    Tiny,
    build_context,
    build_tiny,
    exact_kernels,
    oracle,
    random_weights,
    same_bits,
    tiny,
)
from op_cases import bind
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import AttentionConfig, Rollback
from thalweg.ids import NULL, SKIP
from thalweg.memory.storage import CacheStorage
from thalweg.ops import sampling
from thalweg.ops.registry import KernelSelector
from world import Part, World, bits_of

if TYPE_CHECKING:
    from thalweg.config import ModelConfig
    from thalweg.memory.storage import LayerCache


def prompt(length: int, vocab: int = 32) -> list[int]:
    return [(7 * i + i * i // 5 + i // 3) % vocab for i in range(length)]


def state_of(world: World, slot: int) -> list[LayerCache]:
    return [
        {t.name: layer[t.name][slot].clone() for t in spec.per_sequence}
        for spec, layer in zip(world.tiny.cache_specs, world.storage.state, strict=True)
    ]


def same_state(a: list[LayerCache], b: list[LayerCache]) -> bool:
    return all(same_bits(x[n], y[n]) for x, y in zip(a, b, strict=True) for n in x)


each_exact = pytest.mark.parametrize("kernels", exact_kernels())

# How a prompt is cut


@each_exact
@pytest.mark.parametrize("length", [1, 2, 3, 4, 63, 64, 65, 66, 127, 128, 129, 191, 193])
def test_prefill_equals_prefill_and_decode_equals_single_steps(kernels: str, length: int) -> None:
    """cases.md N1: hidden rows, logits and the final state, bit by bit."""
    check_cuts(tiny(SMALL, kernels), prompt(length))


@each_exact
@pytest.mark.parametrize("name", ["hybrid", "hybrid-moe", "plain"])
@pytest.mark.parametrize("length", [2, 34])
def test_the_same_for_every_kind_of_model(kernels: str, name: str, length: int) -> None:
    """cases.md N1"""
    check_cuts(tiny(MODELS[name], kernels), prompt(length, 512))


def check_cuts(model: Tiny, tokens: list[int]) -> None:
    world = World(model)  # compares every row with single steps from nothing
    whole, split = world.start(), world.start()
    world.run(whole, tokens)
    if len(tokens) > 1:
        world.run(split, tokens[:-1])
    world.run(split, tokens[-1:])
    single = world.oracle.states(tokens)
    assert same_state(state_of(world, whole.held.slot), single)
    assert same_state(state_of(world, split.held.slot), single)
    hidden = world.oracle.rows(tokens)
    assert same_bits(model.decoder.logits(hidden)[-1:], model.decoder.logits(hidden[-1:]))
    world.close()


@each_exact
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 16, 63, 64, 65, 100, 300])
def test_output_does_not_depend_on_the_chunk_size(kernels: str, budget: int) -> None:
    """cases.md N4"""
    world = World(tiny(SMALL, kernels))
    seq, tokens = world.start(), prompt(300)
    for start in range(0, 300, budget):
        world.run(seq, tokens[start : start + budget])
    assert same_state(state_of(world, seq.held.slot), world.oracle.states(tokens))
    world.close()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes_keep_the_law_too(dtype: torch.dtype) -> None:
    """cases.md N4 in float64 and bfloat16."""
    world = World(tiny(SMALL, dtype=dtype))
    seq, tokens = world.start(), prompt(40)
    for start, end in ((0, 17), (17, 18), (18, 40)):
        world.run(seq, tokens[start:end])
    world.verify(seq, [1, 2, 3], 1)
    world.run(seq, [3])
    world.close()


@each_exact
def test_scoring_equals_forced_decoding(kernels: str) -> None:
    """cases.md N12: logprobs of 256 tokens from one pass and from single steps."""
    model, tokens = tiny(SMALL, kernels), prompt(257)
    batch = ForwardBatch.prefill(
        SequenceInput(tokens[:-1], 0, range(1, 17), NULL, [SKIP] * 255 + [1]), block_size=16
    )
    hidden = model.model(batch, CacheStorage(model.cache_specs, 17, 2, block_size=16).layers)
    call = bind(sampling.LOGPROBS_OP, sampling.SamplingProblem(32, torch.float32), "reference")
    scored = call(model.decoder.logits(hidden))
    stepwise = oracle(model).rows(tokens[:-1])
    forced = [call(model.decoder.logits(row[None]))[0] for row in stepwise]
    assert same_bits(scored, torch.stack(forced))


@each_exact
def test_ragged_prompts_together_equal_alone(kernels: str) -> None:
    """cases.md N3, S22: every row is compared with its sequence alone."""
    world = World(tiny(SMALL, kernels))
    lengths = (1, 5, 64, 65, 100)
    for _ in lengths:
        world.start()
    world.step([Part(i, tuple(prompt(n + i)[i:])) for i, n in enumerate(lengths)], (2, 3))
    world.close()


# Rejected drafts


@each_exact
@pytest.mark.parametrize("rollback", Rollback, ids=lambda rollback: rollback.value)
def test_200_rounds_of_forced_rejection_leave_the_windows_of_single_steps(
    kernels: str, rollback: Rollback
) -> None:
    """cases.md P8: conv window, S and KV are those of the tokens that were kept."""
    world = World(tiny(SMALL, kernels), 40, 8, rollback=rollback)
    seq, rng = world.start(prompt(3)), random.Random(1)
    for i in range(200):
        drafts = rng.choices(range(32), k=rng.randint(0, 4))
        world.verify(seq, [i % 5, *drafts], 1 + rng.choice([0, rng.randint(0, len(drafts))]))
        if i % 20 == 0:
            assert same_state(world.state(seq), world.oracle.states(seq.history)), i
    assert 250 < len(seq.history) < 400
    assert same_state(world.state(seq), world.oracle.states(seq.history))
    rows = [seq.held.blocks[p // 16] * 16 + p % 16 for p in range(len(seq.history))]
    for layer, expected in zip(world.storage.paged, world.oracle.kv(seq.history), strict=True):
        assert all(same_bits(layer[n][rows], expected[n]) for n in expected)
    world.close()


@each_exact
def test_a_replayed_verify_pass_writes_its_own_slot_alone(kernels: str) -> None:
    """cases.md P22, REPLAY: own slot = after the first token; the drafts are in its log."""
    world = World(tiny(SMALL, kernels), rollback=Rollback.REPLAY_LAZY)
    seq = world.start(prompt(5))
    before, own = bits_of(world.storage), seq.held.slot
    r = world.manager.reserve(seq.held, 4, num_drafts=3)
    tokens = [2, 3, 1, 4]
    row = SequenceInput(tokens, 5, seq.held.blocks, own, r.store_slots, num_logged=r.num_logged)
    batch = ForwardBatch.ragged([row], range(4), block_size=16, log_size=world.log_size)
    world.tiny.model(batch, world.storage.layers)
    world._check_exclusive(before, [([*range(16 * 64)], [own])])
    assert same_state(state_of(world, own), world.oracle.states([*seq.history, 2]))
    for num_kept in (4, 2):  # of the same log
        entry = replace(seq, held=replace(seq.held, num_pending=num_kept - 1))
        assert same_state(
            world.state(entry), world.oracle.states([*seq.history, *tokens[:num_kept]])
        )
    world.manager.abort(r)


@each_exact
def test_a_verify_pass_keeps_the_state_after_its_certain_token(kernels: str) -> None:
    """cases.md P22, CHECKPOINT: own slot = after the first token; each draft has its own slot."""
    world = World(tiny(SMALL, kernels))
    seq, other = world.start(prompt(5)), world.start(prompt(9))
    untouched = state_of(world, other.held.slot)
    drafts = [3, 1, 4]
    r = world.manager.reserve(seq.held, 4, num_drafts=3)
    batch = ForwardBatch.verify(
        [SequenceInput([2, *drafts], 5, seq.held.blocks, r.load_slot, r.store_slots)],
        block_size=16,
    )
    world.tiny.model(batch, world.storage.layers)
    assert r.load_slot == seq.held.slot == r.store_slots[0]
    for i, slot in enumerate(r.store_slots):
        history = [*seq.history, 2, *drafts[:i]]
        assert same_state(state_of(world, slot), world.oracle.states(history))
    assert same_state(state_of(world, other.held.slot), untouched)
    written = {*r.store_slots, other.held.slot, NULL}
    for slot in {*range(64)} - written:
        assert all(bool(t.isnan().all()) for s in state_of(world, slot) for t in s.values())
    world.manager.abort(r)


# Memory is what the facts say


@pytest.mark.parametrize("name", MODELS)
def test_kv_rows_belong_to_full_attention_layers_alone(name: str) -> None:
    """cases.md N16: built from facts alone, two tokens run, KV layers counted."""
    config = MODELS[name]
    model = tiny(config)
    full = [isinstance(layer.mixer, AttentionConfig) for layer in config.layers]
    assert [bool(s.per_token) for s in model.cache_specs] == full
    assert [not s.per_sequence for s in model.cache_specs] == full
    world = World(model)
    world.start([1, 2])
    world.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kernels", ["torch", "reference"])
def test_state_stays_wide_after_every_path(dtype: torch.dtype, kernels: str) -> None:
    """cases.md N7: prefill, decode, verify and restore leave float32 in a bfloat16 model."""
    model = tiny(SMALL, kernels, dtype=dtype)
    world = Passes(model)
    for tokens, load, stores in (
        ([1, 2, 3], NULL, [SKIP, SKIP, 1]),
        ([4], 1, [1]),
        ([5, 6, 7], 1, [1, 2, 3]),
        ([1], 3, [4]),
    ):
        world.run(tokens, load, stores)
        for state in world.storage.state:
            assert all(t.dtype == torch.float32 for t in state.values())
        for kv in world.storage.paged:
            assert all(t.dtype == dtype for t in kv.values())


class Passes:
    """One sequence, blocks in order, slots by hand."""

    def __init__(self, model: Tiny, max_len: int = 64) -> None:
        self.tiny, self.length = model, 0
        self.blocks = range(1, max_len // model.block_size + 2)
        self.storage = CacheStorage(
            model.cache_specs, len(self.blocks) + 1, 8, block_size=model.block_size
        )

    def run(self, tokens: list[int], load: int, stores: list[int]) -> Tensor:
        seq = SequenceInput(tokens, self.length, self.blocks, load, stores)
        batch = ForwardBatch.prefill(seq, block_size=self.tiny.block_size)
        self.length += len(tokens)
        return self.tiny.model(batch, self.storage.layers)


@cache
def rounded_weights_model(config: ModelConfig, max_len: int) -> Tiny:
    """float64 arithmetic on the weights a bfloat16 model has."""
    weights = {
        name: w if name.endswith(("A_log", "dt_bias")) else w.bfloat16()
        for name, w in random_weights(config).items()
    }
    build = build_context(
        config, KernelSelector("torch"), dtype=torch.float64, max_model_len=max_len
    )
    return build_tiny(config, weights, build)


def drift(num_steps: int) -> list[float]:
    """Relative error of S after each quarter of bfloat16 decoding, against float64."""
    tokens = prompt(num_steps, 512)
    half = Passes(tiny(TH, "torch", dtype=torch.bfloat16, max_model_len=num_steps), num_steps)
    full = Passes(rounded_weights_model(TH, num_steps), num_steps)
    errors = []
    for i, token in enumerate(tokens):
        half.run([token], min(i, 1), [1])
        if (i + 1) % (num_steps // 4) == 0:
            full.run(tokens[full.length : i + 1], min(full.length, 1), _last(i + 1 - full.length))
            a, b = half.storage.state[0]["ssm"][1], full.storage.state[0]["ssm"][1]
            assert a.dtype == torch.float32
            errors.append(float((a.double() - b).norm() / b.norm()))
    return errors


def _last(num_tokens: int) -> list[int]:
    return [SKIP] * (num_tokens - 1) + [1]


def test_state_does_not_drift_over_300_steps() -> None:
    """cases.md N7: rounded activations make an error; it does not grow with the steps."""
    assert max(drift(300)) < 0.01


@pytest.mark.slow
def test_state_does_not_drift_over_4096_steps() -> None:
    """cases.md N7"""
    assert max(drift(4096)) < 0.01


@pytest.mark.parametrize("kernels", ["torch", "reference"])
@pytest.mark.parametrize("size", [1e5, 7e4, 2.0**-25])
def test_large_and_tiny_states_in_a_bfloat16_model(kernels: str, size: float) -> None:
    """cases.md N6, N8: finite, and close to float64 on the same weights and state."""
    models = (tiny(TH, kernels, dtype=torch.bfloat16), rounded_weights_model(TH, 512))
    rows = []
    for model in models:
        passes = Passes(model)
        rng = torch.Generator().manual_seed(5)
        for state in passes.storage.state:
            for name, t in state.items():
                scale = size if name == "ssm" else 1.0
                t[1] = (torch.randn(t[1].shape, generator=rng) * scale).to(t.dtype)
        rows.append(passes.run([3, 4, 5], 1, _last(3)).double())
    assert bool(rows[0].isfinite().all())
    assert float((rows[0] - rows[1]).norm() / rows[1].norm()) < 0.05
