"""Tiny models with random weights, and what they must compute: token by token, from nothing."""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import pytest
import torch
from torch import Tensor

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
from thalweg.layers.gated_delta_net import with_pending
from thalweg.layers.weights import Weights
from thalweg.memory.spec import CacheSpec, DType, TensorSpec
from thalweg.memory.storage import CacheStorage, LayerCache
from thalweg.models.decoder import Decoder
from thalweg.models.mtp import MTPModel
from thalweg.models.plan import ModelPlan
from thalweg.ops import extension
from thalweg.ops.registry import KernelSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GDN = GatedDeltaNetConfig(2, 4, 16, 24, 4)
_GATED_ATTENTION = AttentionConfig(4, 2, 16, RopeConfig(4, 1e4), qk_norm=True, output_gate=True)
_SPARSE = MoEConfig(8, 2, 32, norm_topk_prob=True, shared_intermediate_size=32)


def _hybrid(mlp: MLPConfig | MoEConfig) -> ModelConfig:
    layers = (*[LayerConfig(_GDN, mlp)] * 3, LayerConfig(_GATED_ATTENTION, mlp))
    return ModelConfig("qwen3_5", 512, 64, layers, NormConfig(1e-6, True), True, 512)


TH = _hybrid(MLPConfig(96))
"""3 gated delta nets and 1 gated attention, every dimension different."""
TH_MOE = _hybrid(_SPARSE)
PLAIN = ModelConfig(
    "qwen2",
    512,
    64,
    (LayerConfig(AttentionConfig(4, 2, 16, RopeConfig(16, 1e4), qkv_bias=True), MLPConfig(96)),)
    * 2,
    NormConfig(1e-6),
    False,
    512,
)
_SMALL_ATTENTION = AttentionConfig(2, 1, 8, RopeConfig(4, 1e4), qk_norm=True, output_gate=True)
SMALL = ModelConfig(
    "qwen3_5",
    32,
    16,
    (
        LayerConfig(GatedDeltaNetConfig(1, 2, 4, 6, 4), MLPConfig(8)),
        LayerConfig(_SMALL_ATTENTION, MLPConfig(8)),
        LayerConfig(GatedDeltaNetConfig(1, 1, 4, 5, 4), MLPConfig(8)),
    ),
    NormConfig(1e-6, True),
    True,
    512,
)
"""Small enough for many examples on the reference ops; state before and after an attention."""
MODELS = {"hybrid": TH, "hybrid-moe": TH_MOE, "plain": PLAIN, "small": SMALL}


class RunsBatches(Protocol):
    """What the laws need to know of a model."""

    def __call__(self, batch: ForwardBatch, caches: list[LayerCache]) -> Tensor: ...


@dataclass(frozen=True, slots=True, eq=False)
class Tiny:
    model: RunsBatches
    cache_specs: list[CacheSpec]
    block_size: int

    @property
    def decoder(self) -> Decoder:
        model = self.model.decoder if isinstance(self.model, MTPModel) else self.model
        assert isinstance(model, Decoder)
        return model


@cache
def random_weights(config: ModelConfig) -> dict[str, Tensor]:
    """float32 values of about unit gain, the same in every process."""
    rng = torch.Generator().manual_seed(7)
    return {
        w.name: torch.randn(w.shape, generator=rng)
        * (0.3 if len(w.shape) < 2 else w.shape[-1] ** -0.5)
        for w in ModelPlan.of(config).weights
    }


@cache
def tiny(
    config: ModelConfig,
    kernels: str = "reference",
    *,
    dtype: torch.dtype = torch.float32,
    block_size: int = 16,
    max_model_len: int = 512,
    kv_dtype: DType | None = None,
) -> Tiny:
    build = build_context(
        config,
        KernelSelector(kernels),
        dtype=dtype,
        block_size=block_size,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
    )
    return build_tiny(config, random_weights(config), build)


def build_context(
    config: ModelConfig,
    kernels: KernelSelector,
    *,
    dtype: torch.dtype = torch.float32,
    block_size: int = 16,
    max_model_len: int = 512,
    kv_dtype: DType | None = None,
) -> BuildContext:
    """How a model of this configuration is to be built."""
    return BuildContext(
        kernels,
        dtype,
        "cpu",
        norm=config.norm,
        block_size=block_size,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
    )


def build_tiny(config: ModelConfig, weights: dict[str, Tensor], build: BuildContext) -> Tiny:
    model: Decoder | MTPModel
    model = decoder = Decoder(config, Weights(weights.__getitem__), build)
    if config.mtp_layers:
        model = MTPModel(decoder, Weights(weights.__getitem__), build)
    return Tiny(model, model.cache_specs, build.block_size)


needs_kernels = pytest.mark.skipif(
    extension.reason(torch.float32) is not None, reason=extension.NOT_BUILT
)


def exact_kernels() -> list[str]:
    """Kinds whose bits are promised: the reference, and the compiled kernels where they are."""
    return ["reference", *(["cpu"] if extension.reason(torch.float32) is None else [])]


_PRIME = (1 << 50) - 27


class HashModel:
    """A model without arithmetic: a token's row names all that it read, in order.

    Its state is a hash of the tokens so far, its KV row the same hash, and its output a hash of
    state and context. One wrong, stale or missing read changes it, and it costs microseconds.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.cache_specs = [
            CacheSpec(
                per_token=(TensorSpec("k", (1,), DType.FLOAT64),),
                per_sequence=(TensorSpec("ssm", (1,), DType.FLOAT64),),
                per_draft=(TensorSpec("log", (1,), DType.FLOAT64),),
            )
        ]

    def __call__(self, batch: ForwardBatch, caches: list[LayerCache]) -> Tensor:
        """-> [T, 1] float64"""
        state = caches[0]["ssm"][:, 0]
        kv = caches[0]["k"][:, 0]
        token_ids, positions = batch.token_ids.tolist(), batch.positions.tolist()
        cu_seqlens, seq_lens = batch.cu_seqlens.tolist(), batch.seq_lens.tolist()
        rows = with_pending(batch.token_ids[:, None].double(), caches[0]["log"], batch)
        inputs, recurrent = rows[:, 0].tolist(), batch.recurrent
        stores, starts = recurrent.state.store_slots.tolist(), recurrent.cu_seqlens.tolist()
        after: list[float] = []
        for i, slot in enumerate(batch.state.load_slots.tolist()):
            h = float(state[slot])
            for t in range(starts[i], starts[i + 1]):
                h = _hash(h, inputs[t])
                after.append(h)
                if stores[t] != SKIP:
                    state[stores[t]] = h
        hashes = [after[t] for t in batch.state.replay.new_at.tolist()]
        for h, row in zip(hashes, batch.paged.slot_mapping.tolist(), strict=True):
            if row != SKIP:
                kv[row] = h
        out = torch.zeros(len(token_ids), 1, dtype=torch.float64)
        table, content = batch.paged.block_table.tolist(), kv.tolist()
        for i, seq_len in enumerate(seq_lens):
            if seq_len == 0:
                continue
            num_new = cu_seqlens[i + 1] - cu_seqlens[i]
            assert positions[cu_seqlens[i] : cu_seqlens[i + 1]] == list(
                range(seq_len - num_new, seq_len)
            )
            context = [
                content[table[i][p // self.block_size] * self.block_size + p % self.block_size]
                for p in range(seq_len)
            ]
            seen = 0.0
            for p in range(seq_len):
                seen = _hash(seen, context[p])
                if p >= seq_len - num_new:
                    t = cu_seqlens[i + 1] - seq_len + p
                    out[t, 0] = _hash(seen, hashes[t])
        return out


def _hash(a: float, b: float) -> float:
    if a != a or b != b:
        return float("nan")
    return float((int(a) * 1_000_003 + int(b) * 998_244_353 + 12_345_678_901) % _PRIME)


@cache
def hash_model(block_size: int = 4) -> Tiny:
    model = HashModel(block_size)
    return Tiny(model, model.cache_specs, block_size)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits: 0.0 is not -0.0, and a NaN is itself."""
    return a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def bits(x: Tensor) -> Tensor:
    ints = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return x.contiguous().view(ints[x.element_size()])


def poison(storage: CacheStorage) -> None:
    """Everything is NaN, as memory that nobody has written may be; the zero state stays."""
    for layer in storage.layers:
        for tensor in layer.values():
            tensor.fill_(torch.nan)
    for layer in storage.state:
        for tensor in layer.values():
            tensor[NULL] = 0


@dataclass(slots=True, eq=False)
class Node:
    """What a history ends in."""

    hidden: Tensor  # [1, hidden_size]
    states: list[LayerCache]
    kv: list[LayerCache]


class Oracle:
    """Hidden rows of a token list, computed one token at a time from nothing.

    It knows no manager: one sequence, blocks 1, 2, ..., slot 1. Prefixes are remembered by value.
    """

    def __init__(self, tiny: Tiny, max_len: int = 512) -> None:
        self.tiny = tiny
        self.blocks = list(range(1, -(-max_len // tiny.block_size) + 1))
        self.storage = CacheStorage(
            tiny.cache_specs, len(self.blocks) + 1, 2, block_size=tiny.block_size
        )
        poison(self.storage)
        self.nodes: dict[tuple[int, ...], Node] = {}
        self.current: tuple[int, ...] = ()

    def rows(self, tokens: Iterable[int]) -> Tensor:
        """-> [len(tokens), hidden_size]"""
        history = tuple(tokens)
        for n in range(len(history)):
            if history[: n + 1] not in self.nodes:
                self._extend(history[:n], history[n])
        return torch.cat([self.nodes[history[: n + 1]].hidden for n in range(len(history))])

    def states(self, tokens: Sequence[int]) -> list[LayerCache]:
        """The per-sequence tensors after the tokens."""
        self.rows(tokens)
        return self.nodes[tuple(tokens)].states

    def kv(self, tokens: Sequence[int]) -> list[LayerCache]:
        """The per-token tensors of the tokens, in order."""
        self.rows(tokens)
        nodes = [self.nodes[tuple(tokens[: n + 1])] for n in range(len(tokens))]
        return [
            {n: torch.stack([node.kv[i][n] for node in nodes]) for n in layer}
            for i, layer in enumerate(self.storage.paged)
        ]

    def _extend(self, history: tuple[int, ...], token: int) -> None:
        p, size = len(history), self.tiny.block_size
        if self.current != history:
            self._restore(history)
        batch = ForwardBatch.decode(
            [SequenceInput([token], p, self.blocks[: p // size + 1], int(p > 0), [1])],
            block_size=size,
        )
        hidden = self.tiny.model(batch, self.storage.layers)
        self.current = (*history, token)
        self.nodes[self.current] = Node(
            hidden,
            [
                {t.name: layer[t.name][1].clone() for t in spec.per_sequence}
                for spec, layer in zip(self.tiny.cache_specs, self.storage.state, strict=True)
            ],
            [{n: t[size + p].clone() for n, t in layer.items()} for layer in self.storage.paged],
        )

    def _restore(self, history: tuple[int, ...]) -> None:
        for p in range(len(history)):
            node = self.nodes[history[: p + 1]]
            for layer, saved in zip(self.storage.paged, node.kv, strict=True):
                for name, row in saved.items():
                    layer[name][self.tiny.block_size + p] = row
        if history:
            node = self.nodes[history]
            for layer, saved in zip(self.storage.state, node.states, strict=True):
                for name, value in saved.items():
                    layer[name][1] = value


@cache
def oracle(tiny: Tiny) -> Oracle:
    return Oracle(tiny)


@atexit.register
def forget_models() -> None:
    """Compiled kernels complain of objects that outlive the interpreter."""
    oracle.cache_clear()
    tiny.cache_clear()
