"""Every GGUF architecture gives the weights, facts and logits of the checkpoint it was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import pytest
import torch
from safetensors.torch import load_file

from checkpoints import (
    ARCHITECTURES,
    HYBRIDS,
    Variant,
    edit_config,
    fuse_experts,
    make_checkpoint,
)
from gguf_files import convert, relative_error, write_file, write_gguf
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import EngineConfig
from thalweg.errors import CheckpointError
from thalweg.ids import NULL, SKIP
from thalweg.memory.storage import CacheStorage
from thalweg.models.build import build_model
from thalweg.models.loader import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from thalweg.models.loader import Checkpoint

CASES = [(a, mtp) for a in ARCHITECTURES for mtp in ((False, True) if a in HYBRIDS else (False,))]
TOKENS = [(7 * n + n * n) % 512 for n in range(70)]


@pytest.fixture(params=["ours", "llama.cpp"])
def written_by(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(path: Path, written_by: str, model_type: str, variant: Variant) -> Path:
    """The original in path / "hf", and the GGUF file, which is returned."""
    make_checkpoint(path / "hf", model_type, variant)
    # A random hybrid amplifies rounding errors where a norm gets next to nothing; not so with this.
    edit_config(path / "hf", rms_norm_eps=0.1)
    file = path / "tiny.gguf"
    if written_by == "ours":
        write_gguf(file, path / "hf")
    else:
        convert(file, path / "hf", model_type=model_type)
    return file


@pytest.mark.parametrize(("model_type", "mtp"), CASES)
def test_weights_facts_and_logits_are_those_of_the_original(
    tmp_path: Path, written_by: str, model_type: str, mtp: bool
) -> None:
    """W1, W7: norms are undone once, with a head and without, and those of the head too."""
    file = make(tmp_path, written_by, model_type, Variant(mtp=mtp))
    opened, original = open_checkpoint(file), open_checkpoint(tmp_path / "hf")
    check_facts(opened, original)
    assert len(opened.config.mtp_layers) == int(mtp)
    check_weights(opened, original)
    assert relative_error(logits(opened), logits(original)) < 1e-5


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3_5"])
def test_tied(tmp_path: Path, written_by: str, model_type: str) -> None:
    opened = open_checkpoint(make(tmp_path, written_by, model_type, Variant(tied=True)))
    assert opened.config.tie_word_embeddings
    check_weights(opened, open_checkpoint(tmp_path / "hf"))


def test_of_a_nested_checkpoint_with_separate_experts(tmp_path: Path, written_by: str) -> None:
    """W6"""
    variant = Variant(nested=True, mtp=True)
    opened = open_checkpoint(make(tmp_path, written_by, "qwen3_5_moe", variant))
    check_weights(opened, open_checkpoint(tmp_path / "hf"))


def check_facts(opened: Checkpoint, original: Checkpoint) -> None:
    config, wanted = opened.config, original.config
    assert config.model_type == wanted.model_type
    assert config.layers == wanted.layers
    assert config.mtp_layers == wanted.mtp_layers
    assert config.norm.eps == pytest.approx(wanted.norm.eps, rel=1e-7)
    assert config.norm.zero_centered == wanted.norm.zero_centered
    assert config.tie_word_embeddings == wanted.tie_word_embeddings
    assert (config.vocab_size, config.hidden_size) == (wanted.vocab_size, wanted.hidden_size)
    assert config.max_position_embeddings == wanted.max_position_embeddings


def check_weights(opened: Checkpoint, original: Checkpoint) -> None:
    """Equal, but for the rounding of 1 + w and of -exp(A_log) in the file."""
    weights, wanted = opened.weights(), original.weights()
    assert [w.name for w in opened.plan.weights] == [w.name for w in original.plan.weights]
    for spec in original.plan.weights:
        tensor, other = weights[spec.name], wanted[spec.name]
        rounded = original.config.norm.zero_centered and "norm" in spec.name
        rounded &= "linear_attn.norm" not in spec.name
        if rounded or spec.name.endswith("A_log"):
            assert tensor.dtype == torch.float32
            torch.testing.assert_close(tensor, other, rtol=0, atol=2e-7)
        else:
            assert torch.equal(tensor, other), spec.name


def logits(checkpoint: Checkpoint) -> Tensor:
    """Of every position of `TOKENS`."""
    model = build_model(checkpoint, EngineConfig(kernels="torch"), max_model_len=128).model
    storage = CacheStorage(model.cache_specs, 9, 2, block_size=16)
    stores = [*[SKIP] * (len(TOKENS) - 1), 1]
    sequence = SequenceInput(TOKENS, 0, range(1, 9), NULL, stores)
    batch = ForwardBatch.ragged([sequence], range(len(TOKENS)), block_size=16)
    with torch.inference_mode():
        return model.logits(model(batch, storage.layers))


def test_older_layout_of_qwen3_next(tmp_path: Path) -> None:
    """Before 2026 the converter left q, k, v and z in one matrix, as transformers has them."""
    make_checkpoint(tmp_path / "hf", "qwen3_next")
    tensors = fuse_experts(load_file(tmp_path / "hf" / "model.safetensors"))
    write_gguf(tmp_path / "tiny.gguf", tmp_path / "hf")
    reader = gguf.GGUFReader(tmp_path / "tiny.gguf")

    def fill(writer: Any) -> None:
        for name, field in reader.fields.items():
            if not name.startswith("GGUF.") and name != "general.architecture":
                kind, *inner = field.types
                writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
        for tensor in reader.tensors:
            layer, _, part = tensor.name.removeprefix("blk.").partition(".")
            if part == "attn_qkv.weight":
                fused = tensors[f"model.layers.{layer}.linear_attn.in_proj_qkvz.weight"]
                writer.add_tensor(f"blk.{layer}.ssm_in.weight", fused.numpy())
            elif part == "ffn_gate_exps.weight":
                both = tensors[f"model.layers.{layer}.mlp.experts.gate_up_proj"]
                writer.add_tensor(f"blk.{layer}.ffn_gate_up_exps.weight", both.numpy())
            elif part not in ("attn_gate.weight", "ffn_up_exps.weight"):
                writer.add_tensor(tensor.name, tensor.data)

    opened = open_checkpoint(write_file(tmp_path / "older.gguf", "qwen3next", fill))
    check_weights(opened, open_checkpoint(tmp_path / "hf"))


def test_yarn(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "hf", "qwen3")
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    edit_config(tmp_path / "hf", rope_parameters=rope | {"rope_theta": 10_000.0})
    convert(tmp_path / "tiny.gguf", tmp_path / "hf")
    check_facts(open_checkpoint(tmp_path / "tiny.gguf"), open_checkpoint(tmp_path / "hf"))


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling(tmp_path: Path, factor: float) -> None:
    make_checkpoint(tmp_path / "hf", "llama")
    rope = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": factor}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 8192}
    edit_config(tmp_path / "hf", rope_parameters=rope)
    convert(tmp_path / "tiny.gguf", tmp_path / "hf")
    opened, original = open_checkpoint(tmp_path / "tiny.gguf"), open_checkpoint(tmp_path / "hf")
    check_facts(opened, original)
    check_weights(opened, original)
    assert "read as llama3 scaling" in opened.report.text()


def test_other_llama3_scaling_is_refused(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "hf", "llama")
    rope = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 2.0}
    rope |= {"original_max_position_embeddings": 8192}
    edit_config(tmp_path / "hf", rope_parameters=rope)
    convert(tmp_path / "tiny.gguf", tmp_path / "hf")
    with pytest.raises(CheckpointError, match="only Llama 3's rope scaling"):
        open_checkpoint(tmp_path / "tiny.gguf")
