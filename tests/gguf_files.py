"""GGUF files of tiny checkpoints: as llama.cpp's converter lays them out, and by that converter.

`write_gguf` is ours, from the description of the layout, so that tests need no llama.cpp;
`convert` runs the converter of a llama.cpp source tree, where the machine has one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from safetensors.torch import load_file

from checkpoints import HYBRIDS, fuse_experts
from gguf_layout import stored_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SOURCE = "THALWEG_LLAMA_CPP_SOURCE"
NAMES = {
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
}
"""Of architectures, where they differ from `model_type`."""
KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "head_dim": "attention.key_length",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}


def write_gguf(
    path: Path, checkpoint: Path, *, quantization: str = "F32", part_size: int = 0
) -> None:
    """A Hugging Face directory's model: matrices of one type where it fits, vectors of F32.

    With a `part_size`, in parts of so many tensors: `tiny-00001-of-00003.gguf`, ...
    """
    config = json.loads((checkpoint / "config.json").read_text())
    config |= config.get("text_config", {})
    tensors: dict[str, Tensor] = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        tensors |= load_file(file)
    stored = stored_tensors(fuse_experts(tensors), config)

    def fill(writer: gguf.GGUFWriter) -> None:
        _write_facts(writer, config, stored)
        for name, tensor in stored.items():
            kind = gguf.GGMLQuantizationType[quantization]
            block_size = gguf.GGML_QUANT_SIZES[kind][0]
            if tensor.ndim == 1 or "conv1d" in name or tensor.shape[-1] % block_size:
                kind = gguf.GGMLQuantizationType.F32
            data = gguf.quantize(tensor.float().contiguous().numpy(), kind)
            writer.add_tensor(name, data, raw_dtype=kind)

    name = NAMES.get(config["model_type"], config["model_type"])
    write_file(path, name, fill, part_size=part_size)


def write_file(
    path: Path, architecture: str, fill: Callable[[Any], object], *, part_size: int = 0
) -> Path:
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=part_size)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_facts(
    writer: gguf.GGUFWriter, config: dict[str, Any], stored: dict[str, Tensor]
) -> None:
    name = writer.arch
    for field, key in KEYS.items():
        if config.get(field) is not None:
            writer.add_uint32(f"{name}.{key}", config[field])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if config.get("head_dim") is not None:
        writer.add_value_length(config["head_dim"])
    num_blocks = 1 + max(int(n.split(".")[1]) for n in stored if n.startswith("blk."))
    writer.add_block_count(num_blocks)
    if "linear_num_key_heads" in config:
        num_layers = config["num_hidden_layers"]
        values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        writer.add_ssm_inner_size(values)
        writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
        writer.add_uint32(f"{name}.full_attention_interval", 4)
        if num_blocks > num_layers:
            writer.add_nextn_predict_layers(num_blocks - num_layers)
    if name == "llama":
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(["a", "b", "ab", *(f"token{i}" for i in range(3, config["vocab_size"]))])
    writer.add_token_types([1] * config["vocab_size"])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)


def random_blocks(kind: gguf.GGMLQuantizationType, num_values: int) -> np.ndarray[Any, Any]:
    """Bytes of a quantised tensor whose values are finite and not far from 1."""
    block_size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(num_values)
    blocks = random.integers(0, 256, (num_values // block_size, nbytes), dtype=np.uint8)
    starts = {"Q6_K": [208], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0]}.get(kind.name, [0, 2])
    for start in starts:
        scale = random.uniform(0.001, 0.01, len(blocks)).astype(np.float16)
        blocks[:, start : start + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks


def llama_cpp_source() -> Path:
    """The root of a llama.cpp source tree, such as vendor/llama.cpp of llama-cpp-python's sdist."""
    named = os.environ.get(SOURCE)
    if not named or not (Path(named) / "convert_hf_to_gguf.py").is_file():
        pytest.skip(f"no llama.cpp source: set {SOURCE} to the directory of convert_hf_to_gguf.py")
    return Path(named)


def convert(path: Path, checkpoint: Path, *options: str, model_type: str = "") -> None:
    """By llama.cpp's converter, without a tokenizer."""
    source = llama_cpp_source()
    driver = Path(__file__).with_name("llama_cpp_converter.py")
    plain = model_type in HYBRIDS and not _has_mtp(checkpoint)
    arguments = [*options, *(["--no-mtp"] if plain else []), "--outfile", str(path)]
    subprocess.run(
        [sys.executable, str(driver), str(source), str(checkpoint), *arguments],
        check=True,
        capture_output=True,
    )


def _has_mtp(checkpoint: Path) -> bool:
    return any(
        name.startswith("mtp.") for f in checkpoint.glob("*.safetensors") for name in load_file(f)
    )


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted.double()).abs().max() / wanted.abs().max())
