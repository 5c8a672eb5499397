"""Tiny random checkpoints of every architecture, saved by transformers and varied by hand.

A checkpoint is a directory plus the transformers model it was saved from, so that tests can compare
tensors with its `state_dict()` and logits with its forward pass.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

Tensors = dict[str, "Tensor"]

ARCHITECTURES = (
    "llama",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_moe",
)
HYBRIDS = ("qwen3_next", "qwen3_5", "qwen3_5_moe")
MOE = ("qwen3_moe", "qwen3_next", "qwen3_5_moe")

COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
WIDE_HEADS: dict[str, Any] = {"head_dim": 24}
DENSE: dict[str, Any] = {"intermediate_size": 96}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
SHARED_EXPERT: dict[str, Any] = {"shared_expert_intermediate_size": 48}
HYBRID: dict[str, Any] = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.25,
    },
}
MROPE: dict[str, Any] = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
VISION: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    model_type: str
    model: transformers.PreTrainedModel
    mtp: Tensors
    """The `mtp.*` tensors, if any, as saved. transformers does not load them."""

    def state_dict(self) -> Tensors:
        """The model's weights, in transformers' names for a text-only model."""
        return {
            name.replace("model.language_model.", "model."): tensor
            for name, tensor in self.model.state_dict().items()
        }


@dataclass(frozen=True, slots=True)
class Variant:
    """How a checkpoint is laid out. The default is what transformers saves."""

    nested: bool = False
    """`*ForConditionalGeneration` with a vision tower; qwen3_5 and qwen3_5_moe only."""
    sharded: bool = False
    experts: str = "saved"
    """`fused` or `separate`: changed by hand after saving."""
    mtp: bool = False
    """With a head of random weights; hybrids only."""
    tied: bool = False
    dtype: torch.dtype = torch.float32


def make_checkpoint(path: Path, model_type: str, variant: Variant | None = None) -> Checkpoint:
    variant = variant or Variant()
    torch.manual_seed(sum(model_type.encode()))
    model = _make_model(model_type, variant)
    model.save_pretrained(path, max_shard_size="100KB" if variant.sharded else "1GB")
    mtp: Tensors = {}

    def change(tensors: Tensors) -> Tensors:
        if variant.mtp:
            tensors |= _random_mtp(tensors)
        if variant.experts == "fused":
            tensors = fuse_experts(tensors)
        if variant.experts == "separate":
            tensors = separate_experts(tensors)
        mtp.update({name: t for name, t in tensors.items() if name.startswith("mtp.")})
        return tensors

    if variant.mtp or variant.experts != "saved":
        edit_tensors(path, change)
    return Checkpoint(path, model_type, model, mtp)


def write_config(path: Path, model_type: str) -> Path:
    """Only the config.json of a checkpoint, as transformers saves it."""
    _config(model_type, tied=False).save_pretrained(path)
    return path


def edit_config(path: Path, **changes: Any) -> None:
    """Sets fields of config.json, of `text_config` too where there is one; None deletes."""
    file = path / "config.json"
    config = json.loads(file.read_text())
    for part in (config, config.get("text_config", {})):
        for name, value in changes.items():
            if value is None:
                part.pop(name, None)
            else:
                part[name] = value
    file.write_text(json.dumps(config))


def edit_tensors(path: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Rewrites the safetensors files, in as many shards as before."""
    files = sorted(path.glob("*.safetensors"))
    tensors: Tensors = {}
    for file in files:
        tensors |= load_file(file)
        file.unlink()
    tensors = {name: t.contiguous() for name, t in change(tensors).items()}
    names = [sorted(tensors)[i :: len(files)] for i in range(len(files))]
    for file, shard in zip(files, names, strict=True):
        save_file({name: tensors[name] for name in shard}, file, metadata={"format": "pt"})
    if (index := path / "model.safetensors.index.json").exists():
        where = {name: f.name for f, shard in zip(files, names, strict=True) for name in shard}
        index.write_text(json.dumps({"metadata": {}, "weight_map": where}))


def separate_experts(tensors: Tensors) -> Tensors:
    """`experts.gate_up_proj` [E, 2I, H], `experts.down_proj` [E, H, I] to one tensor each."""
    result: Tensors = {}
    for name, tensor in tensors.items():
        stem, _, part = name.rpartition(".")
        if not stem.endswith("mlp.experts"):
            result[name] = tensor
            continue
        for i, expert in enumerate(tensor):
            if part == "down_proj":
                result[f"{stem}.{i}.down_proj.weight"] = expert.clone()
            else:
                middle = expert.shape[0] // 2
                result[f"{stem}.{i}.gate_proj.weight"] = expert[:middle].clone()
                result[f"{stem}.{i}.up_proj.weight"] = expert[middle:].clone()
    return result


def fuse_experts(tensors: Tensors) -> Tensors:
    """The way back."""
    result: Tensors = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(\w+)\.weight", name)
        if match is None:
            result[name] = tensor
        elif match[2] == "0" and match[3] != "up_proj":
            stem, part = match[1], match[3]
            num = sum(n.startswith(f"{stem}.") and n.endswith("down_proj.weight") for n in tensors)
            every = [tensors[f"{stem}.{i}.{part}.weight"] for i in range(num)]
            if part == "gate_proj":
                ups = [tensors[f"{stem}.{i}.up_proj.weight"] for i in range(num)]
                every = [torch.cat(pair) for pair in zip(every, ups, strict=True)]
            part = part.replace("gate_proj", "gate_up_proj")
            result[f"{stem}.{part}"] = torch.stack(every)
    return result


def _make_model(model_type: str, variant: Variant) -> transformers.PreTrainedModel:
    config: Any = _config(model_type, tied=variant.tied)
    name = type(config).__name__.removesuffix("Config").removesuffix("Text")
    cls: Any = getattr(transformers, f"{name}ForCausalLM")
    if variant.nested:
        outer: Any = getattr(transformers, f"{name}Config")
        config = outer(
            text_config=config.to_dict(), vision_config=VISION, tie_word_embeddings=variant.tied
        )
        cls = getattr(transformers, f"{name}ForConditionalGeneration")
    config._attn_implementation = "eager"
    model: transformers.PreTrainedModel = cls(config).eval()
    _randomize(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(variant.dtype)
    return model


def _config(model_type: str, *, tied: bool) -> transformers.PreTrainedConfig:
    t = transformers
    common = COMMON | {"tie_word_embeddings": tied}
    qwen3_5 = common | HYBRID | {"rope_parameters": HYBRID["rope_parameters"] | MROPE}
    make: dict[str, Callable[[], transformers.PreTrainedConfig]] = {
        "llama": lambda: t.LlamaConfig(**common, **DENSE),
        "qwen2": lambda: t.Qwen2Config(**common, **DENSE),
        "qwen3": lambda: t.Qwen3Config(**common, **DENSE, **WIDE_HEADS),
        "qwen3_moe": lambda: t.Qwen3MoeConfig(
            **common, **DENSE, **WIDE_HEADS, **EXPERTS, norm_topk_prob=True
        ),
        "qwen3_next": lambda: t.Qwen3NextConfig(
            **common, **DENSE, **HYBRID, **EXPERTS, **SHARED_EXPERT
        ),
        "qwen3_5": lambda: t.Qwen3_5TextConfig(**qwen3_5, **DENSE),
        "qwen3_5_moe": lambda: t.Qwen3_5MoeTextConfig(**qwen3_5, **EXPERTS, **SHARED_EXPERT),
    }
    return make[model_type]()


@torch.no_grad()
def _randomize(model: transformers.PreTrainedModel) -> None:
    """No weight keeps a special value such as 0 or 1, and activations stay near 1."""
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            parameter.normal_(std=parameter.shape[-1] ** -0.5)
        elif not name.endswith("A_log"):
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def _random_mtp(tensors: Tensors) -> Tensors:
    """A head whose layer is like the model's full-attention layer, layer 3."""
    hidden = COMMON["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        "mtp.norm.weight": (hidden,),
    }
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"(?:model\.)?(?:language_model\.)?layers\.3\.(.*)", name):
            shapes[f"mtp.layers.0.{match[1]}"] = tuple(tensor.shape)
    dtype = next(iter(tensors.values())).dtype
    return {
        name: torch.randn(shape).mul_(shape[-1] ** -0.5 if len(shape) > 1 else 0.1).to(dtype)
        for name, shape in shapes.items()
    }
