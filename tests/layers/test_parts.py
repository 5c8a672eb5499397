"""The parts of a layer, each against its formula in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from harness import TH
from op_cases import assert_close, randn
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import AttentionConfig, MLPConfig, NormConfig, RopeConfig
from thalweg.ids import NULL, SKIP
from thalweg.layers.attention import Attention
from thalweg.layers.build import BuildContext
from thalweg.layers.cache_spec import cache_spec
from thalweg.layers.linear import Linear
from thalweg.layers.mlp import MLP
from thalweg.layers.norm import AddRMSNorm, RMSNorm
from thalweg.layers.weights import Weights
from thalweg.memory.spec import DType
from thalweg.memory.storage import CacheStorage
from thalweg.ops.registry import KernelSelector


def build(dtype: torch.dtype = torch.float64, kernels: str = "reference") -> BuildContext:
    return BuildContext(
        KernelSelector(kernels),
        dtype,
        "cpu",
        norm=NormConfig(1e-6, zero_centered=True),
        block_size=4,
        max_model_len=64,
    )


def prefill(length: int) -> ForwardBatch:
    seq = SequenceInput([0] * length, 0, range(1, 20), NULL, [SKIP] * length)
    return ForwardBatch.prefill(seq, block_size=4)


def weights(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {
        name.replace("__", "."): randn(*shape, seed=i) * shape[-1] ** -0.5
        for i, (name, shape) in enumerate(shapes.items())
    }


def test_weights_are_named_relative_to_where_a_layer_sits() -> None:
    asked: list[str] = []

    def read(name: str) -> Tensor:
        asked.append(name)
        return torch.zeros(1)

    scope = Weights(read).scope("layers.3").scope("mlp")
    _ = scope["gate.weight"], scope.scope("shared_expert")["up_proj.weight"]
    assert asked == ["layers.3.mlp.gate.weight", "layers.3.mlp.shared_expert.up_proj.weight"]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_joined_projections_follow_each_other(bias: bool, dtype: torch.dtype) -> None:
    """Also where the checkpoint stores parts of different precision (cases.md W3)."""
    w = weights(a__weight=(5, 12), b__weight=(3, 12), a__bias=(5,), b__bias=(3,))
    w["b.weight"] = w["b.weight"].bfloat16()
    layer = Linear(["a", "b"], Weights(w.__getitem__), build(dtype), bias=bias)
    assert (layer.out_features, layer.in_features) == (8, 12)
    x = randn(7, 12, dtype=dtype)
    y = layer(x, prefill(7))
    for part, name in zip(y.split([5, 3], -1), "ab", strict=True):
        offset = w[f"{name}.bias"] if bias else 0
        assert_close(part, x.double() @ w[f"{name}.weight"].double().T + offset, dtype)


def test_mlp() -> None:
    w = weights(gate_proj__weight=(9, 12), up_proj__weight=(9, 12), down_proj__weight=(12, 9))
    x = randn(7, 12)
    gate, up = x @ w["gate_proj.weight"].T, x @ w["up_proj.weight"].T
    expected = (gate / (1 + torch.exp(-gate)) * up) @ w["down_proj.weight"].T
    layer = MLP(MLPConfig(9), Weights(w.__getitem__), build())
    assert_close(layer(x, prefill(7)), expected, torch.float64)


def test_norms_take_the_models_kind_of_weight() -> None:
    w, x, y = weights(weight=(12,)), randn(7, 12, seed=4), randn(7, 12, seed=5)

    def normed(x: Tensor, plus: float) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * (plus + w["weight"])

    centred, plain = build(), replace(build(), norm=NormConfig(1e-6))
    scope = Weights(w.__getitem__)
    assert_close(RMSNorm(scope, centred)(x), normed(x, 1), torch.float64)
    assert_close(RMSNorm(scope, plain)(x), normed(x, 0), torch.float64)
    out, total = AddRMSNorm(scope, centred)(x, y)
    assert torch.equal(total, x + y)
    assert_close(out, normed(x + y, 1), torch.float64)


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("kernels", ["reference", "torch"])
def test_attention(gate: bool, qk_norm: bool, kernels: str) -> None:
    """Per head [q | gate], norm before rotation, rotation of the first channels in halves."""
    H, HKV, D, R, n = 4, 2, 6, 4, 9
    config = AttentionConfig(H, HKV, D, RopeConfig(R, 100.0), qk_norm=qk_norm, output_gate=gate)
    w = weights(
        q_proj__weight=(H * D * (1 + gate), 12),
        k_proj__weight=(HKV * D, 12),
        v_proj__weight=(HKV * D, 12),
        o_proj__weight=(12, H * D),
        q_norm__weight=(D,),
        k_norm__weight=(D,),
    )
    layer = Attention(config, Weights(w.__getitem__), build(kernels=kernels))
    storage = CacheStorage([layer.cache_spec], 20, 2, block_size=4)
    x = randn(n, 12, seed=9)
    out = layer(x, prefill(n), storage.layers[0])

    q, k, v = (
        torch.einsum("td,nd->tn", x, w[f"{name}_proj.weight"]).unflatten(-1, (heads, -1))
        for name, heads in (("q", H), ("k", HKV), ("v", HKV))
    )
    q, gates = q[..., :D], q[..., D:]
    if qk_norm:
        q, k = (
            t / torch.sqrt((t * t).mean(-1, keepdim=True) + 1e-6) * (1 + w[f"{name}_norm.weight"])
            for name, t in (("q", q), ("k", k))
        )
    q, k = rotated(q, R), rotated(k, R)
    k, v = (t.repeat_interleave(H // HKV, 1) for t in (k, v))
    scores = torch.einsum("thd,shd->hts", q, k) / math.sqrt(D)
    scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    o = torch.einsum("hts,shd->thd", scores.softmax(-1), v)
    if gate:
        o = o * gates.sigmoid()
    assert_close(out, o.flatten(1) @ w["o_proj.weight"].T, torch.float64)


def rotated(x: Tensor, rotary_dim: int) -> Tensor:
    """x: [T, heads, D], by position times 100^(-2i / rotary_dim)"""
    half = rotary_dim // 2
    rates = 100.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(len(x))[:, None, None] * rates
    a, b = x[..., :half], x[..., half:rotary_dim]
    turned = [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()]
    return torch.cat([*turned, x[..., rotary_dim:]], -1)


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.value[0])
def test_mixers_declare_what_their_facts_say(dtype: DType) -> None:
    """cases.md N7: recurrent state is never narrower than float32."""
    recurrent, attention = TH.layers[0].mixer, TH.layers[3].mixer
    kv = cache_spec(attention, dtype, kv_dtype=DType.BFLOAT16)
    assert {t.name: (t.shape, t.dtype) for t in kv.per_token} == {
        "k": ((2, 16), DType.BFLOAT16),
        "v": ((2, 16), DType.BFLOAT16),
    }
    wide = dtype if dtype is DType.FLOAT64 else DType.FLOAT32
    state = cache_spec(recurrent, dtype, kv_dtype=DType.BFLOAT16)
    assert {t.name: (t.shape, t.dtype) for t in state.per_sequence} == {
        "conv": ((3, 2 * 2 * 16 + 4 * 24), wide),
        "ssm": ((4, 16, 24), wide),
    }
    assert not kv.per_sequence and not state.per_token
