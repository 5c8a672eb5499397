"""The recurrent layer: a short convolution, then the gated delta rule, then a gated norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.layers.linear import Linear
from thalweg.ops import causal_conv1d, gated_delta_rule, rms_norm
from thalweg.ops.transformer_layers import GatedDeltaNetParts

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import GatedDeltaNetConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights
    from thalweg.memory.storage import LayerCache


@dataclass(frozen=True, slots=True, eq=False)
class GDNInputs:
    """What the projections make of the hidden states, for all rows of all sequences.

    Of N rows the state's inputs: those in the log that a state is behind, and the T new ones.
    """

    qkv: Tensor  # [N, conv_dim], packed q | k | v; convolved by `_convolve`
    g: Tensor  # [N, HV] float32, log decay
    beta: Tensor  # [N, HV] float32, write strength
    z: Tensor  # [T, HV, V], output gate


class GatedDeltaNet(nn.Module):
    """Project all rows at once; convolve over each sequence's own window; run each sequence's own
    state; gate and project all rows at once."""

    def __init__(self, config: GatedDeltaNetConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.config = config
        self.in_proj = Linear(
            ["in_proj_z", "in_proj_qkv", "in_proj_b", "in_proj_a"], weights, build
        )
        self.out_proj = Linear(["out_proj"], weights, build)
        state_dtype = build.state_dtype
        self.gates = build.kernels.bind(
            gated_delta_rule.GATES_OP,
            gated_delta_rule.DeltaGatesProblem(
                weights["A_log"].to(build.device, state_dtype),
                weights["dt_bias"].to(build.device, state_dtype),
            ),
        )
        self.conv = build.kernels.bind(
            causal_conv1d.OP,
            causal_conv1d.CausalConv1dProblem(
                weights["conv1d.weight"].to(build.device, build.dtype)
            ),
        )
        self.delta_rule = build.kernels.bind(
            gated_delta_rule.OP,
            gated_delta_rule.GatedDeltaRuleProblem(
                config.num_k_heads,
                config.num_v_heads,
                config.head_k_dim,
                config.head_v_dim,
                state_dtype,
            ),
        )
        self.norm = build.kernels.bind(
            rms_norm.GATED_OP,
            rms_norm.RMSNormProblem(
                weights["norm.weight"].to(build.device, build.dtype), build.norm.eps
            ),
        )
        self.cache_spec = build.cache_spec(config)

    @property
    def parts(self) -> GatedDeltaNetParts:
        return GatedDeltaNetParts(
            self.in_proj.product,
            self.gates,
            self.conv,
            self.delta_rule,
            self.norm,
            self.out_proj.product,
        )

    def forward(self, hidden: Tensor, batch: ForwardBatch, cache: LayerCache) -> Tensor:
        """hidden: [T, hidden_size] -> [T, hidden_size]"""
        inputs = self._project(hidden, batch, cache)
        inputs = self._convolve(inputs, batch, cache)
        o = self._recur(inputs, batch, cache)
        return self._output(o, inputs, batch)

    def _project(self, hidden: Tensor, batch: ForwardBatch, cache: LayerCache) -> GDNInputs:
        c = self.config
        projected = self.in_proj(hidden, batch)
        z, new = projected.tensor_split([c.value_dim], -1)
        rows = with_pending(new, cache["log"], batch)
        qkv, b, a = rows.split_with_sizes([c.conv_dim, c.num_v_heads, c.num_v_heads], -1)
        g, beta = self.gates(a, b)
        return GDNInputs(qkv, g, beta, z.view(-1, c.num_v_heads, c.head_v_dim))

    def _convolve(self, inputs: GDNInputs, batch: ForwardBatch, cache: LayerCache) -> GDNInputs:
        return replace(inputs, qkv=self.conv(inputs.qkv, cache["conv"], batch.recurrent))

    def _recur(self, inputs: GDNInputs, batch: ForwardBatch, cache: LayerCache) -> Tensor:
        """-> [T, HV, V] in the state's dtype"""
        c = self.config
        q, k, v = inputs.qkv.split_with_sizes([c.key_dim, c.key_dim, c.value_dim], -1)
        o = self.delta_rule(
            q.view(-1, c.num_k_heads, c.head_k_dim),
            k.view(-1, c.num_k_heads, c.head_k_dim),
            v.view(-1, c.num_v_heads, c.head_v_dim),
            inputs.g,
            inputs.beta,
            cache["ssm"],
            batch.recurrent,
        )
        return o[batch.state.replay.new_at] if batch.shape.num_pending else o

    def _output(self, o: Tensor, inputs: GDNInputs, batch: ForwardBatch) -> Tensor:
        return self.out_proj(self.norm(o, inputs.z).flatten(1), batch)


def with_pending(new: Tensor, log: Tensor, batch: ForwardBatch) -> Tensor:
    """Read the logged rows that states are behind, then log those of the new ones that may be
    rejected. new: [T, D], log: [num_slots, log_size, D] -> [N, D]"""
    index, rows, log = batch.state.replay, new, log.flatten(0, 1)
    if batch.shape.num_pending:
        rows = log.new_empty(len(index.store_slots), new.shape[1])
        rows[index.pending_at] = log[index.pending]
        rows[index.new_at] = new.to(log.dtype)
    if batch.shape.num_logged:
        log[index.logged_at] = new[index.logged].to(log.dtype)
    return rows
