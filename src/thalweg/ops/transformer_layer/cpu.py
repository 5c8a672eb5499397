from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from thalweg.ops import extension
from thalweg.ops.transformer_layer.parts import AttentionParts, GatedDeltaNetParts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.ops.transformer_layer import TransformerLayer, TransformerLayerProblem

POOLS = {GatedDeltaNetParts: ("conv", "ssm", "log"), AttentionParts: ("k", "v")}


def reject(problem: TransformerLayerProblem) -> str | None:
    calls = (problem.input_norm, *_calls(problem.mixer), problem.post_norm, problem.mlp)
    if all(extension.object_of(call) is not None for call in calls if call is not None):
        return None
    return "a part is on another kernel"


def bind(problem: TransformerLayerProblem) -> TransformerLayer:
    names = POOLS[type(problem.mixer)]
    kernel = extension.kernels().Layer(
        extension.object_of(problem.input_norm),
        _mixer(problem.mixer),
        extension.object_of(problem.post_norm),
        extension.object_of(problem.mlp),
    )

    def transformer_layer(
        hidden: Tensor, residual: Tensor, batch: ForwardBatch, cache: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        assert hidden.is_contiguous() and residual.is_contiguous()
        a, b, *log = (cache[name] for name in names)
        assert all(pool.is_contiguous() for pool in (a, b, *log))
        out, total = torch.empty_like(hidden), torch.empty_like(hidden)
        kernel.run(
            extension.pass_of(batch),
            a.data_ptr(),
            b.data_ptr(),
            a.dtype == torch.bfloat16,
            log[0].data_ptr() if log else 0,
            hidden.data_ptr(),
            residual.data_ptr(),
            out.data_ptr(),
            total.data_ptr(),
        )
        return out, total

    return transformer_layer


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
