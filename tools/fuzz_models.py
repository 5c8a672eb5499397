"""Random small models of any parts through the compiled kernels, in passes cut in any way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from fuzz_weights import KINDS, same, stored, unit
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import (
    AttentionConfig,
    GatedDeltaNetConfig,
    LayerConfig,
    MLPConfig,
    ModelConfig,
    MoEConfig,
    NormConfig,
    RopeConfig,
)
from thalweg.ids import NULL, SKIP
from thalweg.layers.build import BuildContext
from thalweg.layers.weights import Weights
from thalweg.memory.spec import DType
from thalweg.memory.storage import CacheStorage
from thalweg.models.decoder import Decoder
from thalweg.models.plan import ModelPlan
from thalweg.ops import extension
from thalweg.ops.registry import KernelSelector

if TYPE_CHECKING:
    from torch import Tensor

    from thalweg.ops.weight import Stored

BLOCK_SIZE = 16


def random_config(rng: random.Random, k: int) -> ModelConfig:
    """Every matrix has a multiple of k inputs."""

    def size(most: int) -> int:
        return k * rng.randint(1, max(1, most // k))

    def layer() -> LayerConfig:
        kv_heads, group, half = rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 20)
        head_dim = k if k > 1 else 2 * half
        v_heads = rng.randint(1, 2) * kv_heads
        mixers: list[AttentionConfig | GatedDeltaNetConfig] = [
            AttentionConfig(
                kv_heads * group,
                kv_heads,
                head_dim,
                RopeConfig(2 * min(half, head_dim // 2), 1e4),
                qkv_bias=rng.random() < 0.5,
                qk_norm=rng.random() < 0.5,
                output_gate=rng.random() < 0.5,
            ),
            GatedDeltaNetConfig(kv_heads, v_heads, rng.randint(1, 40), size(48), rng.randint(2, 5)),
        ]
        experts = rng.randint(1, 6)
        mlps: list[MLPConfig | MoEConfig] = [
            MLPConfig(size(200)),
            MoEConfig(
                experts,
                rng.randint(1, experts),
                size(60),
                rng.random() < 0.5,
                shared_intermediate_size=rng.choice([0, size(60)]),
            ),
        ]
        return LayerConfig(rng.choice(mixers), rng.choice(mlps))

    layers = tuple(layer() for _ in range(rng.randint(1, 3)))
    norm = NormConfig(1e-6, rng.random() < 0.5)
    return ModelConfig("fuzzed", rng.randint(3, 90), size(150), layers, norm, True, 512)


def random_model(rng: random.Random) -> Decoder:
    kind = rng.choice(KINDS)
    config = random_config(rng, unit(kind))
    weights: dict[str, Stored] = {}
    for spec in ModelPlan.of(config).weights:
        is_matrix = len(spec.shape) > 1 and "conv1d" not in spec.name
        weights[spec.name] = stored(spec.shape, kind if is_matrix else "f32", rng)
    build = BuildContext(
        KernelSelector("cpu"),
        torch.float32,
        "cpu",
        norm=config.norm,
        block_size=BLOCK_SIZE,
        max_model_len=512,
        kv_dtype=rng.choice([DType.FLOAT32, DType.BFLOAT16]),
    )
    return Decoder(config, Weights(weights.__getitem__), build)


def poisoned(model: Decoder) -> CacheStorage:
    """Pools of which only the zero state may be read."""
    storage = CacheStorage(model.cache_specs, 60, 4, block_size=BLOCK_SIZE)
    for layer in storage.layers:
        for tensor in layer.values():
            tensor.fill_(torch.nan)
    for layer in storage.state:
        for tensor in layer.values():
            tensor[NULL] = 0
    return storage


def in_passes(model: Decoder, prompts: list[list[int]], cuts: random.Random) -> list[Tensor]:
    """Two prompts in chunks of any length, alone or beside each other, on any threads, blocks and
    slots -> hidden rows, logits and states."""
    extension.kernels().set_num_threads(cuts.randint(1, 4))
    blocks = [cuts.sample(range(1, 30), 29), cuts.sample(range(30, 60), 30)]
    slots = cuts.sample([1, 2, 3], 2)
    storage = poisoned(model)
    done = [0, 0]
    rows: list[list[Tensor]] = [[], []]
    while left := [i for i in (0, 1) if done[i] < len(prompts[i])]:
        inputs, sizes = [], []
        chosen = cuts.sample(left, cuts.randint(1, len(left)))
        for i in chosen:
            n = min(len(prompts[i]) - done[i], cuts.choice([1, 1, 2, cuts.randint(1, 200)]))
            load, stores = slots[i] if done[i] else NULL, [SKIP] * (n - 1) + [slots[i]]
            new = prompts[i][done[i] : done[i] + n]
            inputs.append(SequenceInput(new, done[i], blocks[i], load, stores))
            sizes.append(n)
            done[i] += n
        batch = ForwardBatch.ragged(inputs, [], block_size=BLOCK_SIZE)
        for i, part in zip(chosen, model(batch, storage.layers).split(sizes), strict=True):
            rows[i].append(part)
    hidden = torch.cat([*rows[0], *rows[1]])
    states = [t[slots] for layer in storage.state for t in layer.values()]
    return [hidden, model.logits(hidden), *states]


def fuzz_model(rng: random.Random) -> None:
    model = random_model(rng)
    vocab_size = model.config.vocab_size
    prompts = [rng.choices(range(vocab_size), k=rng.randint(1, most)) for most in (40, 300)]
    first, second = (in_passes(model, prompts, random.Random(seed)) for seed in (1, 2))
    for a, b in zip(first, second, strict=True):
        assert bool(a.isfinite().all())
        same(a, b)
