"""The recurrent layer: a short convolution, then the gated delta rule, then a gated norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from thalweg.layers.linear import Linear
from thalweg.ops import causal_conv1d, gated_delta_rule, rms_norm
from thalweg.ops.transformer_layer import GatedDeltaNetParts

if TYPE_CHECKING:
    from thalweg.batch import ForwardBatch
    from thalweg.config import GatedDeltaNetConfig
    from thalweg.layers.build import BuildContext
    from thalweg.layers.weights import Weights
    from thalweg.memory.storage import LayerCache


@dataclass(frozen=True, slots=True, eq=False)
class GDNInputs:
    """What the projections make of the hidden states, for all rows of all sequences."""

    qkv: Tensor  # [T, conv_dim], packed q | k | v; convolved by `_convolve`
    g: Tensor  # [T, HV] float32, log decay
    beta: Tensor  # [T, HV] float32, write strength
    z: Tensor  # [T, HV, V], output gate


class GatedDeltaNet(nn.Module):
    """Project all rows at once; convolve over each sequence's own window; run each sequence's own
    state; gate and project all rows at once."""

    def __init__(self, config: GatedDeltaNetConfig, weights: Weights, build: BuildContext) -> None:
        super().__init__()
        self.config = config
        self.in_proj = Linear(
            ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"], weights, build
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
        inputs = self._project(hidden, batch)
        inputs = self._convolve(inputs, batch, cache)
        o = self._recur(inputs, batch, cache)
        return self._output(o, inputs, batch)

    def _project(self, hidden: Tensor, batch: ForwardBatch) -> GDNInputs:
        c = self.config
        qkv, z, b, a = self.in_proj(hidden, batch).split_with_sizes(
            [c.conv_dim, c.value_dim, c.num_v_heads, c.num_v_heads], -1
        )
        g, beta = self.gates(a, b)
        return GDNInputs(qkv, g, beta, z.view(-1, c.num_v_heads, c.head_v_dim))

    def _convolve(self, inputs: GDNInputs, batch: ForwardBatch, cache: LayerCache) -> GDNInputs:
        return replace(inputs, qkv=self.conv(inputs.qkv, cache["conv"], batch))

    def _recur(self, inputs: GDNInputs, batch: ForwardBatch, cache: LayerCache) -> Tensor:
        """-> [T, HV, V] in the state's dtype"""
        c = self.config
        q, k, v = inputs.qkv.split_with_sizes([c.key_dim, c.key_dim, c.value_dim], -1)
        return self.delta_rule(
            q.view(-1, c.num_k_heads, c.head_k_dim),
            k.view(-1, c.num_k_heads, c.head_k_dim),
            v.view(-1, c.num_v_heads, c.head_v_dim),
            inputs.g,
            inputs.beta,
            cache["ssm"],
            batch,
        )

    def _output(self, o: Tensor, inputs: GDNInputs, batch: ForwardBatch) -> Tensor:
        return self.out_proj(self.norm(o, inputs.z).flatten(1), batch)
