"""The `qwen3_5` text model and its multi-token-prediction (MTP) layer, for training.

Module and parameter names are those of the checkpoint. Rows of a batch hold several documents;
`Rows` says which, and nothing leaks from one to the next: attention is masked, the recurrent state
is decayed to zero and the convolution window is cut at the first token of a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .delta_rule import chunk_gated_delta_rule

if TYPE_CHECKING:
    from .model_config import ModelConfig

_FORGET = -40.0  # log decay at a document's first token: exp(-40) is far below fp32 resolution


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the documents of a batch lie."""

    offsets: Tensor  # [B, T] int64, position of a token in its document
    same: Tensor  # [B, 1, T, T] bool, key is in the query's document and not after it

    @staticmethod
    def from_documents(documents: Tensor) -> Rows:
        """`documents` [B, T] int64: the number of each token's document, not decreasing."""
        length = documents.shape[1]
        columns = torch.arange(length)
        starts = torch.ones_like(documents, dtype=torch.bool)
        starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
        first = torch.where(starts, columns, 0).cummax(dim=1).values
        same = documents[:, :, None] == documents[:, None, :]
        return Rows(columns - first, (same & (columns[:, None] >= columns))[:, None])


class RMSNorm(nn.Module):
    """Zero-centred: the scale is 1 + weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight)


class GatedRMSNorm(nn.Module):
    """Plain weight, then `silu(gate)`."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * x * F.silu(gate)


class Rotary(nn.Module):
    """Rotates the first `rotary_dim` channels of q and k."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.rotary_dim
        inverse = config.rope_theta ** -(torch.arange(0, dim, 2).float() / dim)
        angles = torch.outer(torch.arange(config.max_position_embeddings).float(), inverse)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(self, x: Tensor, shift: int = 0) -> Tensor:
        """x `[B, H, T, D]`, tokens at positions `shift`, `shift + 1`, ..."""
        cos, sin = self.cos[shift:][: x.shape[2]], self.sin[shift:][: x.shape[2]]
        turned, kept = x.split([cos.shape[1], x.shape[3] - cos.shape[1]], dim=-1)
        left, right = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat([-right, left], dim=-1) * sin
        return torch.cat([turned, kept], dim=-1)


class Attention(nn.Module):
    """Gated attention with q/k norm."""

    def __init__(self, config: ModelConfig, rotary: Rotary) -> None:
        super().__init__()
        self.num_heads, self.head_dim = config.num_attention_heads, config.head_dim
        self.group = config.num_attention_heads // config.num_key_value_heads
        width = self.num_heads * self.head_dim
        kv_width = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, 2 * width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self._rotary = [rotary]  # shared, hidden from the module tree

    def keys_values(self, x: Tensor, shift: int = 0) -> tuple[Tensor, Tensor]:
        """k and v `[B, num_heads, T, D]` of x `[B, T, hidden]`."""
        k = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
        k = self._rotary[0](self.k_norm(k).transpose(1, 2), shift)
        v = self.v_proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return k.repeat_interleave(self.group, 1), v.repeat_interleave(self.group, 1)

    def forward(
        self, x: Tensor, rows: Rows, earlier: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Causal over the tokens of x; with `earlier` (keys and values of the previous draft step)
        each token sees those up to its own column and, of x, only itself, one position later."""
        shift = 0 if earlier is None else 1
        q, gate = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).chunk(2, dim=-1)
        q = self._rotary[0](self.q_norm(q).transpose(1, 2), shift)
        k, v = self.keys_values(x, shift)
        mask = rows.same
        if earlier is not None:
            own = torch.eye(x.shape[1], dtype=torch.bool).expand_as(mask)
            k, v = torch.cat([earlier[0], k], 2), torch.cat([earlier[1], v], 2)
            mask = torch.cat([mask, own], -1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        return self.o_proj((out * torch.sigmoid(gate)).flatten(2))


class GatedDeltaNet(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        key_dim, value_dim = config.linear_key_dim, config.linear_value_dim
        heads, hidden = config.linear_num_value_heads, config.hidden_size
        self.conv1d = nn.Conv1d(
            2 * key_dim + value_dim,
            2 * key_dim + value_dim,
            config.linear_conv_kernel_dim,
            groups=2 * key_dim + value_dim,
            bias=False,
        )
        self.in_proj_qkv = nn.Linear(hidden, 2 * key_dim + value_dim, bias=False)
        self.in_proj_z = nn.Linear(hidden, value_dim, bias=False)
        self.in_proj_b = nn.Linear(hidden, heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, heads, bias=False)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(0.5, 8.0).log())
        self.dt_bias = nn.Parameter(torch.empty(heads).uniform_(-6.0, -2.0))
        self.norm = GatedRMSNorm(config.linear_value_head_dim, config.rms_norm_eps)
        self.out_proj = nn.Linear(value_dim, hidden, bias=False)

    def _convolve(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Depthwise causal convolution of x `[B, T, C]` within each document, then SiLU."""
        taps = self.conv1d.weight[:, 0].t()  # [W, C], the last tap is the current token
        out = x * taps[-1]
        for back in range(1, taps.shape[0]):
            inside = (offsets[:, back:] >= back)[..., None]
            shifted = F.pad(x[:, :-back] * inside, (0, 0, back, 0))
            out = out + shifted * taps[-1 - back]
        return F.silu(out)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        c = self.config
        mixed = self._convolve(self.in_proj_qkv(x).float(), rows.offsets)
        q, k, v = mixed.split([c.linear_key_dim, c.linear_key_dim, c.linear_value_dim], dim=-1)
        q = q.unflatten(-1, (-1, c.linear_key_head_dim))
        k = k.unflatten(-1, (-1, c.linear_key_head_dim))
        v = v.unflatten(-1, (-1, c.linear_value_head_dim))
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6)
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        q = q * c.linear_key_head_dim**-0.5
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x) + self.dt_bias)
        g = torch.where(rows.offsets[..., None] == 0, _FORGET, g)
        beta = self.in_proj_b(x).sigmoid()
        with torch.autocast("cpu", enabled=False):
            out = chunk_gated_delta_rule(q, k, v, g, beta.float())
        z = self.in_proj_z(x).unflatten(-1, (-1, c.linear_value_head_dim))
        return self.out_proj(self.norm(out, z).flatten(2))


class MLP(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LinearLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.linear_attn = GatedDeltaNet(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        x = x + self.linear_attn(self.input_layernorm(x), rows)
        return x + self.mlp(self.post_attention_layernorm(x))


class AttentionLayer(nn.Module):
    def __init__(self, config: ModelConfig, rotary: Rotary) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, rotary)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, rows: Rows, earlier: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rows, earlier)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """Embedding, layers and final norm: `model.*` of the checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        rotary = Rotary(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            AttentionLayer(config, rotary) if config.is_attention(i) else LinearLayer(config)
            for i in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, tokens: Tensor, rows: Rows) -> Tensor:
        """Normed hidden states `[B, T, hidden]` of tokens `[B, T]`."""
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, rows)
        return self.norm(x)


class DraftLayer(nn.Module):
    """The MTP layer: `mtp.*` of the checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        eps = config.rms_norm_eps
        self.pre_fc_norm_embedding = RMSNorm(config.hidden_size, eps)
        self.pre_fc_norm_hidden = RMSNorm(config.hidden_size, eps)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layers = nn.ModuleList([AttentionLayer(config, Rotary(config))])
        self.norm = RMSNorm(config.hidden_size, eps)

    def join(self, embeds: Tensor, hidden: Tensor) -> Tensor:
        """Input of the layer: embeddings of the next tokens and normed hidden states, each
        `[B, T, hidden]`; `hidden` comes from the model or from a previous draft step."""
        pair = [self.pre_fc_norm_embedding(embeds), self.pre_fc_norm_hidden(hidden)]
        return self.fc(torch.cat(pair, dim=-1))

    def forward(
        self, joined: Tensor, rows: Rows, earlier: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        return self.norm(self.layers[0](joined, rows, earlier))

    def keys_values(self, joined: Tensor) -> tuple[Tensor, Tensor]:
        """What a chained draft step sees of this one."""
        layer = self.layers[0]
        assert isinstance(layer, AttentionLayer)
        return layer.self_attn.keys_values(layer.input_layernorm(joined))


class TinyModel(nn.Module):
    """The whole checkpoint; the output projection is the embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Model(config)
        self.mtp = DraftLayer(config)
        self._initialise()

    def _initialise(self) -> None:
        """Normal(0.02), and the layers' outputs smaller by the depth."""
        scale = (2 * self.config.num_hidden_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                nn.init.normal_(parameter, std=0.02 * scale)
            elif name.endswith("conv1d.weight"):
                nn.init.uniform_(parameter, -0.5, 0.5)
            elif parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def logits(self, hidden: Tensor) -> Tensor:
        """`[..., vocab]` from normed hidden states `[..., hidden]`."""
        return F.linear(hidden, self.model.embed_tokens.weight)
