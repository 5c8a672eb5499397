"""What each kind of mixer remembers, from its facts alone. Torch-free: memory is planned before a
model is built."""

from __future__ import annotations

from thalweg.config import AttentionConfig, GatedDeltaNetConfig, MixerConfig
from thalweg.memory.spec import CacheSpec, DType, TensorSpec


def cache_spec(mixer: MixerConfig, dtype: DType, *, kv_dtype: DType) -> CacheSpec:
    """`dtype` is the model's: recurrent state has at least float32. KV rows have `kv_dtype`."""
    match mixer:
        case AttentionConfig():
            row = (mixer.num_kv_heads, mixer.head_dim)
            return CacheSpec(
                per_token=tuple(TensorSpec(name, row, kv_dtype) for name in ("k", "v"))
            )
        case GatedDeltaNetConfig():
            state_dtype = DType.FLOAT64 if dtype == DType.FLOAT64 else DType.FLOAT32
            window = (mixer.conv_kernel_size - 1, mixer.conv_dim)
            state = (mixer.num_v_heads, mixer.head_k_dim, mixer.head_v_dim)
            inputs = (mixer.conv_dim + 2 * mixer.num_v_heads,)  # qkv, b, a
            return CacheSpec(
                per_sequence=(
                    TensorSpec("conv", window, state_dtype),
                    TensorSpec("ssm", state, state_dtype),
                ),
                per_draft=(TensorSpec("log", inputs, state_dtype),),
            )


def mtp_cache_spec(layer: CacheSpec, hidden_size: int, dtype: DType) -> CacheSpec:
    """What a multi-token-prediction head remembers: what its layer does, and the target's hidden
    state after each stored or logged token."""
    last, log = (TensorSpec(name, (hidden_size,), dtype) for name in ("last_hidden", "hidden_log"))
    return layer.merge(CacheSpec(per_sequence=(last,), per_draft=(log,)))
