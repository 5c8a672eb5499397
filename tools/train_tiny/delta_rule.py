"""The gated delta rule, in parallel over chunks of the sequence (WY form), for training.

Per value head, with state S [K, V] and S_0 = 0, the recurrence is

    S <- exp(g_t) S;  u_t = beta_t (v_t - S^T k_t);  S <- S + k_t u_t^T;  o_t = S^T q_t

Inside a chunk, with G the running sum of g, substituting S gives a unit lower triangular system

    u_i + sum_{j<i} beta_i exp(G_i - G_j) (k_i . k_j) u_j = beta_i (v_i - exp(G_i) S^T k_i)

so one triangular solve replaces the loop over tokens, and only S passes from chunk to chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64


# Compiled between bf16 products its gradient came out as NaN (torch 2.13).
@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch says nothing of it
def chunk_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Outputs o `[B, T, HV, V]` of the recurrence from a zero state.

    q, k `[B, T, H, K]` are L2-normalised and q is scaled; v `[B, T, HV, V]`; g (log decay, <= 0)
    and beta `[B, T, HV]`. T is a multiple of CHUNK; key head h serves value heads
    `h * HV / H` and following. All fp32.
    """
    batch, length, num_v_heads, v_dim = v.shape
    num_k_heads, k_dim = k.shape[2:]
    num_chunks, group = length // CHUNK, num_v_heads // num_k_heads

    def split(x: Tensor) -> Tensor:  # [B, T, H, D] -> [N, B, H, C, D]
        return x.unflatten(1, (num_chunks, CHUNK)).permute(1, 0, 3, 2, 4)

    def widen(x: Tensor) -> Tensor:  # [N, B, H, ...] -> [N, B, HV, ...]
        return x.repeat_interleave(group, dim=2) if group > 1 else x

    q, k, v = split(q), split(k), split(v)
    beta, total = split(beta[..., None]), split(g[..., None]).cumsum(-2)  # [N, B, HV, C, 1]
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    gap = (total - total.transpose(-1, -2)).masked_fill(~lower, -torch.inf)
    decay = gap.exp()  # [N, B, HV, C, C], exp(G_i - G_j) on and below the diagonal
    keys_t = k.transpose(-1, -2)
    scores = widen(q @ keys_t) * decay
    system = widen(k @ keys_t) * (decay * beta)  # the solver reads only below the diagonal

    k, q = widen(k), widen(q)
    grown = total.exp()
    rhs = torch.cat([beta * v, (beta * grown) * k], dim=-1)
    solved = torch.linalg.solve_triangular(system, rhs, upper=False, unitriangular=True)
    own, carried = solved.split([v_dim, k_dim], dim=-1)
    q = q * grown
    last = total[..., -1:, :]
    k_end = (k * (last - total).exp()).transpose(-1, -2)  # [N, B, HV, K, C]
    last = last.exp()

    state = v.new_zeros(batch, num_v_heads, k_dim, v_dim)
    updates, reads = [], []
    parts = (x.unbind(0) for x in (own, carried, q, k_end, last))
    for own_i, carried_i, q_i, k_i, last_i in zip(*parts, strict=True):
        update = own_i - carried_i @ state
        reads.append(q_i @ state)
        updates.append(update)
        state = last_i * state + k_i @ update
    out = torch.stack(reads) + scores @ torch.stack(updates)  # [N, B, HV, C, V]
    return out.permute(1, 0, 3, 2, 4).reshape(batch, length, num_v_heads, v_dim)


def recurrent_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The same by the definition, one token at a time; the reference of the test."""
    group = v.shape[2] // k.shape[2]
    q, k = q.repeat_interleave(group, 2), k.repeat_interleave(group, 2)
    state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3])
    outputs = []
    for t in range(v.shape[1]):
        state = g[:, t].exp()[..., None, None] * state
        read = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        update = beta[:, t, :, None] * (v[:, t] - read)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], update)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, dim=1)
