from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from thalweg.ops import extension
from thalweg.ops.transformer_layers.parts import AttentionParts, GatedDeltaNetParts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.transformer_layers import TransformerLayers, TransformerLayersProblem
    from thalweg.ops.transformer_layers.parts import LayerParts

POOLS = {GatedDeltaNetParts: ("conv", "ssm", "log"), AttentionParts: ("k", "v")}


def reject(problem: TransformerLayersProblem) -> str | None:
    for layer in problem.layers:
        calls = (layer.input_norm, *_calls(layer.mixer), layer.post_norm, layer.mlp)
        if any(extension.object_of(call) is None for call in calls if call is not None):
            return "a part is on another kernel"
    return None


def bind(problem: TransformerLayersProblem) -> TransformerLayers:
    names = [POOLS[type(layer.mixer)] for layer in problem.layers]
    kernel = extension.kernels().Layers([_layer(layer) for layer in problem.layers])

    def transformer_layers(
        hidden: Tensor,
        residual: Tensor,
        batch: ForwardBatch,
        caches: Sequence[Mapping[str, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        assert hidden.is_contiguous() and residual.is_contiguous()
        pools = [_pools(cache, each) for cache, each in zip(caches, names, strict=True)]
        out, total = torch.empty_like(hidden), torch.empty_like(hidden)
        kernel.run(
            extension.pass_of(batch),
            pools,
            hidden.data_ptr(),
            residual.data_ptr(),
            out.data_ptr(),
            total.data_ptr(),
        )
        return out, total

    return transformer_layers


def _pools(cache: Mapping[str, Tensor], names: tuple[str, ...]) -> tuple[int, int, int, bool]:
    """The addresses of two pools and of the log, or 0, and whether they are bfloat16."""
    a, b, *log = (cache[name] for name in names)
    assert a.is_contiguous() and b.is_contiguous()
    log_at = log[0].data_ptr() if log else 0
    return a.data_ptr(), b.data_ptr(), log_at, a.dtype == torch.bfloat16


def _layer(layer: LayerParts) -> Any:
    of = extension.object_of
    return extension.kernels().Layer(
        of(layer.input_norm), _mixer(layer.mixer), of(layer.post_norm), of(layer.mlp)
    )


def _mixer(parts: GatedDeltaNetParts | AttentionParts) -> Any:
    objects = [None if call is None else extension.object_of(call) for call in _calls(parts)]
    match parts:
        case GatedDeltaNetParts():
            return extension.kernels().GatedDeltaNetMixer(*objects)
        case AttentionParts():
            return extension.kernels().AttentionMixer(*objects, parts.output_gate)


def _calls(parts: GatedDeltaNetParts | AttentionParts) -> tuple[object, ...]:
    """In the order in which the extension takes them; None where a model has none."""
    match parts:
        case GatedDeltaNetParts():
            return (
                parts.in_proj,
                parts.gates,
                parts.conv,
                parts.delta_rule,
                parts.norm,
                parts.out_proj,
            )
        case AttentionParts():
            return (
                parts.qkv_proj,
                parts.q_norm,
                parts.k_norm,
                parts.rotary,
                parts.attention,
                parts.o_proj,
            )
