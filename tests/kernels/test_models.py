"""Whole tiny models on the compiled kernels: law 3, bit by bit.

A `World` compares every row, state and cache row of every step with the same model run one token
at a time from nothing, in other blocks and slots.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import (
    MODELS,
    Tiny,
    build_context,
    build_tiny,
    exact_kernels,
    oracle,
    random_weights,
    same_bits,
    tiny,
)
from kernel_cases import CHUNKS, THREADS, chunks, whole_pass
from programs import EXAMPLES, random_program, run_program
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import NULL
from thalweg.memory.spec import DType
from thalweg.memory.storage import CacheStorage
from thalweg.ops import extension
from thalweg.ops.registry import KernelSelector
from world import Part, World

if TYPE_CHECKING:
    from torch import Tensor

each_model = pytest.mark.parametrize("name", MODELS)


def cpu(name: str, *, block_size: int = 16) -> Tiny:
    return tiny(MODELS[name], "cpu", block_size=block_size)


@each_model
def test_every_op_of_a_pass_is_compiled(name: str) -> None:
    selector = KernelSelector()
    build = build_context(MODELS[name], selector)
    build_tiny(MODELS[name], random_weights(MODELS[name]), build)
    assert {choice.kernel for choice in selector.plan().choices} == {"cpu"}


@each_model
@pytest.mark.parametrize("size", CHUNKS)
def test_chunks_are_single_tokens(name: str, size: int) -> None:
    world = World(cpu(name), 64, 64)
    entry = world.start()
    for part in chunks(130, size):
        world.run(entry, [(7 * t) % 32 for t in part])
    world.close()


@each_model
def test_rows_of_mixed_batches(name: str) -> None:
    """Decode, chunks, verified drafts and forks, all in one pass beside each other."""
    world = World(cpu(name), 128, 64)
    for n in (1, 7, 20, 64, 3, 2, 1, 33):
        world.start([(11 * i + n) % 32 for i in range(n)])
    world.step([Part(0, (1,)), Part(1, (2, 3, 4, 5), 3, 1), Part(2, (6,) * 5)], (2, 1))
    world.step([Part(i, (9,)) for i in range(8)])
    world.step([Part(i, tuple(range(1 + 3 * i))) for i in range(7)], (3,))
    world.step([Part(i, (9, 8, 7), 2, i % 3) for i in range(8)])
    world.close()


@pytest.mark.parametrize("program", EXAMPLES, ids=range(len(EXAMPLES)))
@pytest.mark.parametrize("pools", [(64, 64), (8, 6)], ids=str)
def test_rare_interleavings(program: object, pools: tuple[int, int]) -> None:
    run_program(World(cpu("small", block_size=4), *pools), program)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 30))
def test_any_program(seed: int) -> None:
    world = World(cpu("small", block_size=4), 24, 24)
    run_program(world, random_program(random.Random(seed), num_ops=12))


@each_model
def test_threads_and_levels_change_nothing(name: str) -> None:
    kernels = extension.kernels()
    expected = None
    for level in kernels.levels():
        kernels.set_level(level)
        build = build_context(MODELS[name], KernelSelector("cpu"))
        model = build_tiny(MODELS[name], random_weights(MODELS[name]), build)
        for threads in THREADS:
            kernels.set_num_threads(threads)
            outputs = whole_pass(model)
            expected = expected or outputs
            assert all(same_bits(a, b) for a, b in zip(outputs, expected, strict=True))


@each_model
def test_all_layers_at_once_are_their_parts_one_after_the_other(name: str) -> None:
    build = build_context(MODELS[name], KernelSelector("cpu"))
    model = build_tiny(MODELS[name], random_weights(MODELS[name]), build)
    at_once = whole_pass(model)
    assert model.decoder.at_once is not None
    model.decoder.at_once = None
    by_parts = whole_pass(model)
    assert all(same_bits(a, b) for a, b in zip(at_once, by_parts, strict=True))


def rounded_weights(name: str, kind: str) -> dict[str, Tensor]:
    """Weights that the packer keeps in fewer bits: bf16, or groups of 8 or 4 bits."""
    weights = random_weights(MODELS[name])
    if kind == "bf16":
        return {n: w.bfloat16().float() for n, w in weights.items()}
    most = {"q8": 127, "q4": 7}[kind]

    def grouped(w: Tensor) -> Tensor:
        if w.dim() < 2 or w.shape[-1] % 32:
            return w
        g = w.unflatten(-1, (-1, 32))
        scale = (g.abs().amax(-1, keepdim=True) / most).half().float()
        codes = (g / scale).round().clamp(-most, most)
        if kind == "q4":  # a quantiser's group has its largest magnitude at -8
            codes[..., 0] = -8
        else:
            codes[..., 0] = 127
        return (codes * scale).flatten(-2)

    return {n: grouped(w) for n, w in weights.items()}


@pytest.mark.parametrize("kind", ["bf16", "q8", "q4"])
@pytest.mark.parametrize("name", ["hybrid", "hybrid-moe", "plain"])
def test_every_weight_type(name: str, kind: str) -> None:
    config = MODELS[name]
    build = build_context(config, KernelSelector("cpu"))
    weights = rounded_weights(name, kind)
    assert extension.packed(weights["embed_tokens.weight"]).format == kind
    model = build_tiny(config, weights, build)
    world = World(model, 128, 64)
    for n in (1, 7, 65, 130):
        world.start([(11 * i + n) % 32 for i in range(n)])
    world.step([Part(0, (1,)), Part(1, (2, 3, 4, 5), 3, 1), Part(2, (6,) * 5), Part(3, (6,) * 9)])
    world.step([Part(i, (9,)) for i in range(4)])
    world.close()


@pytest.mark.parametrize("block_size", [16, 32])
def test_chunks_that_cross_boundaries_of_states(block_size: int) -> None:
    """cases.md N5: a prompt of 400 in chunks of 24, its state kept at every block boundary; from
    each of them it goes on alike."""
    world = World(cpu("small", block_size=block_size), 400 // block_size + 4, 64)
    seq, tokens = world.start(), [(7 * t + t // 9) % 32 for t in range(400)]
    kept = [
        snap
        for part in chunks(400, 24)
        for snap in world.run(seq, [tokens[t] for t in part], capture=True)
    ]
    assert len(kept) == 400 // block_size
    for snap in kept:
        expected = world.oracle.states(snap.history)
        for layer, single in zip(world.storage.state, expected, strict=True):
            assert all(
                same_bits(layer[name][snap.held.slot], each) for name, each in single.items()
            )
        num_known = len(snap.history)
        again = world.resume(snap)
        world.run(again, [*tokens, 5, 6][num_known : num_known + block_size + 2])
        world.free(again)
    world.close()


def test_scoring_in_one_pass_is_decoding_token_by_token() -> None:
    """cases.md N12: logits of a prompt's rows are those of forced decoding."""
    model = cpu("hybrid")
    tokens = [(13 * t) % 32 for t in range(256)]
    single = oracle(model).rows(tokens)
    storage = CacheStorage(model.cache_specs, 20, 2, block_size=16)
    batch = ForwardBatch.ragged(
        [SequenceInput(tokens, 0, list(range(1, 17)), NULL, [-1] * 255 + [1])],
        range(256),
        block_size=16,
    )
    for layer in storage.state:
        for tensor in layer.values():
            tensor[NULL] = 0
    hidden = model.decoder(batch, storage.layers)
    assert same_bits(hidden, single)
    logits = model.decoder.logits(hidden)
    assert same_bits(logits[100:101], model.decoder.logits(hidden[100:101]))


@pytest.mark.parametrize("kernels", exact_kernels())
@pytest.mark.parametrize("name", ["small", "hybrid", "plain"])
def test_attention_reads_what_a_bfloat16_cache_holds(name: str, kernels: str) -> None:
    """Its own rows of the same pass too: chunks, decode and drafts have the bits of single
    tokens."""
    if kernels == "reference" and name != "small":
        return
    model = tiny(MODELS[name], kernels, kv_dtype=DType.BFLOAT16)
    world = World(model, 128, 64)
    assert {t.dtype for spec in model.cache_specs for t in spec.per_token} == {DType.BFLOAT16}
    for n in (1, 2, 7, 16, 33, 65):
        world.start([(11 * i + n) % 32 for i in range(n)])
    world.step([Part(0, (1,)), Part(1, (2, 3, 4, 5), 3, 1), Part(2, (6,) * 5)], (2, 1))
    world.step([Part(i, tuple(range(1 + 3 * i))) for i in range(6)], (3,))
    world.step([Part(i, (9, 8, 7), 2, i % 3) for i in range(6)])
    world.close()
    wide = oracle(tiny(MODELS[name], kernels)).rows(range(20))
    narrow = oracle(model).rows(range(20))
    assert not same_bits(wide, narrow)
    assert float((wide - narrow).norm() / wide.norm()) < 0.02
