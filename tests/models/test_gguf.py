"""`llama` from GGUF: values, facts, and damaged or unsupported files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import pytest
import torch

from checkpoints import Variant, make_checkpoint
from gguf_files import write_file, write_gguf
from thalweg.config.model import AttentionConfig, MLPConfig, RopeConfig
from thalweg.errors import CheckpointError
from thalweg.models.gguf_facts import gguf_facts
from thalweg.models.gguf_header import read_gguf_header
from thalweg.models.gguf_llama import describe_gguf_llama
from thalweg.models.loader import TokenizerMetadata, open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ERROR = {
    "F32": 0.0,
    "F16": 2e-3,
    "BF16": 2e-2,
    "Q8_0": 1e-2,
    "Q5_1": 0.1,
    "Q5_0": 0.1,
    "Q4_1": 0.2,
    "Q4_0": 0.2,
}
"""Largest rounding error of weights of about 1."""
HALVES = {"F16": torch.float16, "BF16": torch.bfloat16}


def make(path: Path, quantization: str = "F32", *, tied: bool = False) -> None:
    make_checkpoint(path / "hf", "llama", Variant(tied=tied))
    write_gguf(path / "tiny.gguf", path / "hf", quantization=quantization)


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("quantization", ERROR)
def test_values_are_those_of_the_original(tmp_path: Path, quantization: str, tied: bool) -> None:
    make(tmp_path, quantization, tied=tied)
    opened = open_checkpoint(tmp_path / "tiny.gguf")
    original = open_checkpoint(tmp_path / "hf")
    weights, wanted = opened.weights(), original.weights()
    assert [w.name for w in opened.plan.weights] == [w.name for w in original.plan.weights]
    for spec in opened.plan.weights:
        tensor = weights[spec.name]
        half = HALVES.get(quantization, torch.float32) if len(spec.shape) > 1 else torch.float32
        assert tensor.dtype == half
        error = (tensor.float() - wanted[spec.name]).abs().max().item()
        assert error <= ERROR[quantization], spec.name
    assert opened.config.tie_word_embeddings == tied


def test_facts_are_those_of_the_original(tmp_path: Path) -> None:
    make(tmp_path)
    opened = open_checkpoint(tmp_path / "tiny.gguf")
    config, original = opened.config, open_checkpoint(tmp_path / "hf").config
    assert config.layers == original.layers
    assert config.layers[0].mixer == AttentionConfig(4, 2, 16, RopeConfig(16, 10_000.0))
    assert config.layers[0].mlp == MLPConfig(96)
    assert config.norm.eps == pytest.approx(original.norm.eps, rel=1e-7)
    assert (config.vocab_size, config.max_position_embeddings) == (512, 1024)
    assert config.eos_token_ids == (2,)
    assert isinstance(opened.tokenizer, TokenizerMetadata)
    assert opened.tokenizer.values["tokenizer.ggml.tokens"][2:4] == ["ab", "token3"]


def test_header_is_as_the_gguf_package_reads_it(tmp_path: Path) -> None:
    make(tmp_path, "Q8_0")
    header = read_gguf_header(tmp_path / "tiny.gguf")
    reader = gguf.GGUFReader(tmp_path / "tiny.gguf")
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert dict(header.metadata) == fields
    assert len(header.tensors) == len(reader.tensors)
    for tensor in reader.tensors:
        stored = header.tensors[tensor.name]
        assert stored.info.shape == tuple(reversed(tensor.shape.tolist()))
        assert stored.info.dtype_name == tensor.tensor_type.name
        assert (stored.offset, stored.info.nbytes) == (tensor.data_offset, tensor.n_bytes)


def test_report(tmp_path: Path) -> None:
    make(tmp_path, "Q4_1")
    lines = open_checkpoint(tmp_path / "tiny.gguf").report.text().splitlines()
    assert lines[0].startswith("llama (GGUF): ")
    assert "Q4_1 30 tensors" in lines[0] and "F32 9 tensors" in lines[0]
    assert lines[1:] == [
        "rotary halves un-interleaved: 8 weights",
        "on the compiled kernels: Q4_1 as q4m (same values)",
    ]


def test_cut_anywhere_it_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    whole = (tmp_path / "tiny.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in [0, 3, 4, 8, 23, 24, 25, 40, *range(41, len(whole) // 8, 7001), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        assert "truncated" in refusal(cut)


def test_any_damaged_header_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    """No other exception than ours, and no endless loop, whatever byte is wrong."""
    make(tmp_path)
    whole = bytearray((tmp_path / "tiny.gguf").read_bytes())
    bad = tmp_path / "bad.gguf"
    start = whole.index(b"blk.0.")
    places = [*range(0, 600, 7), *range(start - 8, start + 300, 5)]
    for place in places:
        damaged = whole.copy()
        damaged[place] ^= 0xFF
        bad.write_bytes(damaged)
        try:
            open_checkpoint(bad)
        except CheckpointError as error:
            assert "\n" not in str(error)


def test_wrong_beginnings(tmp_path: Path) -> None:
    make(tmp_path)
    whole = (tmp_path / "tiny.gguf").read_bytes()
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGML" + whole[4:])
    assert "is no GGUF file" in refusal(bad)
    bad.write_bytes(whole[:4] + (1).to_bytes(4, "little") + whole[8:])
    assert "is GGUF version 1: only 2 and 3 are supported" in refusal(bad)


@pytest.mark.parametrize("architecture", ["qwen", "qwen2moe", "gemma3"])
def test_other_architectures_are_refused_by_name(tmp_path: Path, architecture: str) -> None:
    path = write_file(tmp_path / "x.gguf", architecture, lambda w: w.add_block_count(1))
    assert f"unknown GGUF architecture '{architecture}': known are llama" in refusal(path)


def fill_llama(writer: Any) -> None:
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(8)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda w: w.add_expert_count(8), "expert_count = 8"),
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), 'type = "longrope"'),
        (lambda w: w.add_float32("llama.rope.scale_linear", 2.0), "scale_linear = 2.0 is not"),
        (lambda w: w.add_attention_scale(0.5), "attention.scale = 0.5 is not supported: a key"),
        (lambda w: w.add_rope_dimension_count(8), "rope.dimension_count = 8"),
        (lambda w: w.add_value_length(8), "attention.value_length = 8"),
        (lambda w: w.add_head_count_kv([2, 1]), "attention.head_count_kv = [2, 1]"),
        (lambda w: w.add_uint16("split.count", 2), "must end in -00001-of-00002.gguf"),
        (lambda w: None, "missing: token_embd.weight"),
    ],
)
def test_unsupported_facts_are_refused_by_name(
    tmp_path: Path, add: Callable[[Any], object], message: str
) -> None:
    def fill(writer: Any) -> None:
        fill_llama(writer)
        add(writer)

    assert message in refusal(write_file(tmp_path / "x.gguf", "llama", fill))


def test_missing_facts_are_named(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.gguf", "llama", lambda w: w.add_block_count(1))
    assert "GGUF metadata llama.* lacks feed_forward_length" in refusal(path)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (gguf.RopeScalingType.LINEAR, RopeConfig(16, 10_000.0, "linear", (("factor", 4.0),))),
        (None, RopeConfig(16, 10_000.0, "linear", (("factor", 4.0),))),
        (gguf.RopeScalingType.NONE, RopeConfig(16, 10_000.0)),
    ],
)
def test_linear_scaling(tmp_path: Path, kind: Any, wanted: RopeConfig) -> None:
    def fill(writer: Any) -> None:
        fill_llama(writer)
        writer.add_rope_scaling_factor(4.0)
        if kind is not None:
            writer.add_rope_scaling_type(kind)

    header = read_gguf_header(write_file(tmp_path / "x.gguf", "llama", fill))
    mixer = describe_gguf_llama(gguf_facts("llama", header.metadata, {})).layers[0].mixer
    assert isinstance(mixer, AttentionConfig)
    assert mixer.rope == wanted


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("output_norm.weight", "Q3_K", "output_norm.weight has type Q3_K, which is not supported"),
        ("rope_freqs.weight", "F32", "rope_freqs.weight has shape [1, 256] and type F32: [8] of"),
        ("blk.0.attn_q.bias", "F32", "1 unknown: blk.0.attn_q.bias"),
    ],
)
def test_unsupported_tensors_are_refused_by_name(
    tmp_path: Path, name: str, kind: str, message: str
) -> None:
    def fill(writer: Any) -> None:
        fill_llama(writer)
        names = ["token_embd", "output_norm"]
        names += [f"blk.0.{n}" for n in ("attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v")]
        names += [f"blk.0.{n}" for n in ("attn_output", "ffn_gate", "ffn_up", "ffn_down")]
        zeros = torch.zeros(1, 256).numpy()
        for tensor in dict.fromkeys([*(f"{n}.weight" for n in names), name]):
            ggml_type = gguf.GGMLQuantizationType[kind if tensor == name else "F32"]
            block = zeros if kind == "F32" else torch.zeros(1, 110, dtype=torch.uint8).numpy()
            data = block if tensor == name else zeros
            writer.add_tensor(tensor, data, raw_dtype=ggml_type)

    path = tmp_path / "x.gguf"
    assert message in refusal(write_file(path, "llama", fill))
