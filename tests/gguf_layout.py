"""The layout of GGUF files, the way there: what llama.cpp's converter does to a checkpoint.

Written from the description of the container and not from the package's recipes, which say the way
back.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

STEMS = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "fc": "nextn.eh_proj",
    "pre_fc_norm_embedding": "nextn.enorm",
    "pre_fc_norm_hidden": "nextn.hnorm",
}


def stored_tensors(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """tensors: under Hugging Face's names, experts fused"""
    stored: Tensors = {}
    hybrid = "linear_num_key_heads" in config
    for name, tensor in tensors.items():
        name = re.sub(r"^(model\.)?(language_model\.)?", "", name)
        if "visual." in name or (name == "lm_head.weight" and config["tie_word_embeddings"]):
            continue
        block, part = _place(name, config["num_hidden_layers"])
        if hybrid:
            tensor = _transformed(part, tensor, config)
        elif config["model_type"] == "llama" and part in (
            "self_attn.q_proj.weight",
            "self_attn.k_proj.weight",
        ):
            tensor = _interleaved_halves(tensor, config["head_dim"] or _head_dim(config))
        for stored_part, value in _named(part, tensor, config, mtp=name.startswith("mtp.")).items():
            stored[block + stored_part] = value.squeeze()
    return stored


def _head_dim(config: dict[str, Any]) -> int:
    return int(config["hidden_size"] // config["num_attention_heads"])


def _place(name: str, num_layers: int) -> tuple[str, str]:
    """`blk.N.` and what is below it; all of the MTP head is in the blocks after the last."""
    if match := re.match(r"(mtp\.)?layers\.(\d+)\.(.*)", name):
        return f"blk.{int(match[2]) + (num_layers if match[1] else 0)}.", match[3]
    if name.startswith("mtp."):
        return f"blk.{num_layers}.", name.removeprefix("mtp.")
    return "", name


def _named(part: str, tensor: Tensor, config: dict[str, Any], *, mtp: bool) -> Tensors:
    stem, _, kind = part.rpartition(".")
    if part == "mlp.experts.gate_up_proj":
        gate, up = tensor.chunk(2, 1)
        return {"ffn_gate_exps.weight": gate, "ffn_up_exps.weight": up}
    if part == "mlp.experts.down_proj":
        return {"ffn_down_exps.weight": tensor}
    if part == "linear_attn.A_log":
        return {"ssm_a": tensor}
    if part == "linear_attn.dt_bias":
        return {"ssm_dt.bias": tensor}
    if stem == "linear_attn.in_proj_qkvz":
        qkv, z = _without_groups(tensor, config)
        return {"attn_qkv.weight": qkv, "attn_gate.weight": z}
    if stem == "post_attention_layernorm":
        hybrid = "linear_num_key_heads" in config
        return {f"{'post_attention_norm' if hybrid else 'ffn_norm'}.{kind}": tensor}
    if stem == "norm" and mtp:
        return {f"nextn.shared_head_norm.{kind}": tensor}
    return {f"{STEMS[stem]}.{kind}": tensor}


def _transformed(part: str, tensor: Tensor, config: dict[str, Any]) -> Tensor:
    if "norm" in part and part != "linear_attn.norm.weight":
        return tensor + 1
    if part == "linear_attn.A_log":
        tensor = -tensor.exp()
    if not part.startswith("linear_attn.") or config["model_type"] == "qwen3_next":
        return tensor
    k_heads, v_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    qk_rows = 2 * k_heads * config["linear_key_head_dim"]

    def tiled(rows: Tensor) -> Tensor:
        grouped = rows.reshape(k_heads, v_heads // k_heads, -1, *rows.shape[1:])
        return grouped.transpose(0, 1).reshape(rows.shape)

    match part.removeprefix("linear_attn."):
        case "in_proj_qkv.weight" | "conv1d.weight":
            return torch.cat([tensor[:qk_rows], tiled(tensor[qk_rows:])])
        case "out_proj.weight":
            return tiled(tensor.T.contiguous()).T
        case "norm.weight":
            return tensor
        case _:
            return tiled(tensor)


def _without_groups(qkvz: Tensor, config: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Rows of each key head [q | k | v | z] to all q, all k, all v; all z."""
    k_heads, k_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    v_dim = config["linear_num_value_heads"] // k_heads * config["linear_value_head_dim"]
    groups = qkvz.reshape(k_heads, 2 * k_dim + 2 * v_dim, -1)
    q, k, v, z = groups.split([k_dim, k_dim, v_dim, v_dim], 1)
    return torch.cat([each.flatten(0, 1) for each in (q, k, v)]), z.flatten(0, 1)


def _interleaved_halves(tensor: Tensor, head_dim: int) -> Tensor:
    """Within a head, row i of the first half then row i of the second."""
    heads = tensor.reshape(-1, 2, head_dim // 2, *tensor.shape[1:])
    return heads.transpose(1, 2).reshape(tensor.shape)
