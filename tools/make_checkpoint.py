"""Random checkpoints of real shapes, to measure with.

    python tools/make_checkpoint.py qwen3.5-0.8b OUT --tokenizer models/SmolLM2.gguf \\
        --gguf bf16 q8_0 q4_0 --llama-cpp llama.cpp

writes OUT/ (config, bfloat16 safetensors, tokenizer) and OUT.bf16.gguf, OUT.q8_0.gguf, ... by
llama.cpp's own converter and quantiser. The vocabulary has the real size: ids beyond the
tokenizer's are unused. Needs transformers and safetensors (the `test` extra), and for --gguf a
source tree of llama.cpp and the package llama-cpp-python.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from make_gguf import TYPES, make_gguf
from thalweg.models.gguf_header import read_gguf_header
from thalweg.text import Tokenizer, tokenizer_from_gguf

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = "model.safetensors"
LOGITS_STD = 3.0
"""Of logits at random weights: the most likely of 248,320 tokens then has a few percent."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A text config of transformers: its class, its model's class, and what is not default."""

    config: Callable[..., transformers.PreTrainedConfig]
    model: type[transformers.PreTrainedModel]
    values: dict[str, Any] = field(default_factory=dict)


HYBRID: dict[str, Any] = {
    "vocab_size": 248_320,
    "max_position_embeddings": 262_144,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}
DENSE = {"num_hidden_layers": 24, "intermediate_size": 3584}
EXPERTS = {
    "num_hidden_layers": 12,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
TINY = {
    "vocab_size": 50_000,
    "max_position_embeddings": 8192,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "rope_parameters": HYBRID["rope_parameters"] | {"mrope_section": [3, 3, 2]},
}
_T = transformers
SHAPES = {
    "qwen3.5-0.8b": Shape(_T.Qwen3_5TextConfig, _T.Qwen3_5ForCausalLM, HYBRID | DENSE),
    "qwen3.5-moe-1b": Shape(_T.Qwen3_5MoeTextConfig, _T.Qwen3_5MoeForCausalLM, HYBRID | EXPERTS),
    "tiny": Shape(_T.Qwen3_5TextConfig, _T.Qwen3_5ForCausalLM, HYBRID | TINY),
}
"""The second is ours, no released model: 0.9 G weights, of which a token uses 0.4 G."""


def make_checkpoint(
    out: Path, shape: Shape, *, tokenizer: Path, mtp: bool = False, seed: int = 0
) -> None:
    """Write a directory that `LLM`, transformers and llama.cpp's converter read."""
    out.mkdir(parents=True, exist_ok=True)
    eos_id = write_tokenizer(out, tokenizer)
    config = shape.config(
        **shape.values,
        eos_token_id=eos_id,
        bos_token_id=None,
        pad_token_id=None,
        architectures=[shape.model.__name__],
        dtype="bfloat16",
    )
    config.save_pretrained(out)
    _edit_json(out / "config.json", mtp_num_hidden_layers=int(mtp))
    with torch.device("meta"):
        model = shape.model(config)
    skipped = {"lm_head.weight"} if config.tie_word_embeddings else set()
    shapes = {n: tuple(p.shape) for n, p in model.named_parameters() if n not in skipped}
    if mtp:
        shapes |= mtp_shapes(shapes, config.hidden_size)
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: random_weight(name, size, generator) for name, size in shapes.items()}
    save_file(tensors, out / "model.part", metadata={"format": "pt"})
    (out / "model.part").rename(out / WEIGHTS)  # with it the checkpoint is whole


def mtp_shapes(shapes: dict[str, tuple[int, ...]], hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Of a head whose one layer is like the model's attention layers."""
    layer = min(int(m[1]) for n in shapes if (m := re.search(r"layers\.(\d+)\.self_attn", n)))
    head: dict[str, tuple[int, ...]] = {
        "mtp.fc.weight": (hidden_size, 2 * hidden_size),
        "mtp.pre_fc_norm_embedding.weight": (hidden_size,),
        "mtp.pre_fc_norm_hidden.weight": (hidden_size,),
        "mtp.norm.weight": (hidden_size,),
    }
    for name, size in shapes.items():
        if (match := re.search(rf"layers\.{layer}\.(.*)", name)) is not None:
            head[f"mtp.layers.0.{match[1]}"] = size
    return head


def random_weight(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """[*shape] bfloat16, such that activations stay near 1 and states decay as trained ones do."""
    if name.endswith("A_log"):
        value = torch.empty(shape).uniform_(1, 16, generator=generator).log_()
    elif name.endswith("dt_bias"):  # softplus of it is 0.001 to 0.1, evenly in the logarithm
        step = torch.empty(shape).uniform_(math.log(1e-3), math.log(0.1), generator=generator)
        value = step.exp_().expm1_().log_()
    else:
        value = torch.empty(shape).normal_(generator=generator)
        if len(shape) == 1:
            value.mul_(0.1)
            if name.endswith("linear_attn.norm.weight"):
                value.add_(1)  # the one norm that is not zero-centred
        else:
            value.mul_(shape[-1] ** -0.5)
        if name.endswith("embed_tokens.weight"):
            value.mul_(LOGITS_STD)
    return value.to(torch.bfloat16)


def write_tokenizer(out: Path, source: Path) -> int:
    """Copy the tokenizer of a directory or a GGUF file. -> the id that ends an answer"""
    if source.is_dir():
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (source / name).is_file():
                shutil.copy(source / name, out)
        return Tokenizer.from_directory(out).eos_ids[0]
    metadata = read_gguf_header(source).metadata
    tokenizer = tokenizer_from_gguf(metadata)
    (out / "tokenizer.json").write_text(tokenizer.to_json())
    names = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.names}
    (out / "tokenizer_config.json").write_text(json.dumps(names))
    if (template := metadata.get("tokenizer.chat_template")) is not None:
        (out / "chat_template.jinja").write_text(template)
    return tokenizer.eos_ids[0]


def _edit_json(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path, help="the directory to make")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a directory or GGUF file")
    parser.add_argument("--mtp", action="store_true", help="with a multi-token prediction layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gguf", nargs="*", choices=TYPES, default=[], metavar="TYPE")
    parser.add_argument("--llama-cpp", type=Path, help="the directory of convert_hf_to_gguf.py")
    args = parser.parse_args()
    if args.gguf and args.llama_cpp is None:
        parser.error("--gguf needs --llama-cpp")
    if not (args.out / WEIGHTS).exists():
        make_checkpoint(
            args.out, SHAPES[args.shape], tokenizer=args.tokenizer, mtp=args.mtp, seed=args.seed
        )
    for kind in args.gguf:
        print(make_gguf(args.out, kind, llama_cpp=args.llama_cpp))


if __name__ == "__main__":
    main()
