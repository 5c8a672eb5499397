"""Checkpoints whose tensors do not fit their config, and what the report says of those that do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

from checkpoints import HYBRIDS, Variant, edit_config, edit_tensors, fuse_experts, make_checkpoint
from thalweg.config import EngineConfig
from thalweg.errors import CheckpointError, ConfigError
from thalweg.models.headers import read_headers
from thalweg.models.loader import TokenizerDirectory, open_checkpoint
from thalweg.models.memory import model_memory
from thalweg.models.mtp_plan import settle_mtp_weights

if TYPE_CHECKING:
    from pathlib import Path

    from checkpoints import Tensors


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without(path: Path, pattern: str) -> list[str]:
    """Removes the tensors whose names hold a pattern."""
    gone: list[str] = []

    def change(tensors: Tensors) -> Tensors:
        gone.extend(name for name in tensors if re.search(pattern, name))
        return {name: t for name, t in tensors.items() if name not in gone}

    edit_tensors(path, change)
    return gone


def test_missing_tensors_are_named_and_counted(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama")
    assert len(without(tmp_path, "down_proj")) == 4
    message = refusal(tmp_path)
    names = [f"model.layers.{i}.mlp.down_proj.weight" for i in range(3)]
    assert f"4 missing: {', '.join(names)}, ..." in message


def test_missing_experts_are_named_as_the_file_names_the_others(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "qwen3_moe", Variant(experts="separate"))
    without(tmp_path, r"layers\.2\.mlp\.experts\.5\.up_proj")
    assert "1 missing: model.layers.2.mlp.experts.5.up_proj.weight" in refusal(tmp_path)


def test_unknown_tensors_are_named_and_counted(tmp_path: Path) -> None:
    """W4"""
    make_checkpoint(tmp_path, "qwen3")
    scales = {f"model.layers.{i}.mlp.up_proj.weight_scale_inv": torch.ones(1) for i in range(4)}
    edit_tensors(tmp_path, lambda tensors: tensors | scales)
    assert f"4 unknown: {', '.join(list(scales)[:3])}, ..." in refusal(tmp_path)


def test_wrong_shapes_are_told(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "qwen3_next")
    name = "model.layers.0.linear_attn.conv1d.weight"
    edit_tensors(tmp_path, lambda tensors: tensors | {name: torch.ones(160, 4)})
    message = refusal(tmp_path)
    assert f"{name} has shape [160, 4], but the config needs [160, 1, 4]" in message


def test_fp8_is_refused_by_name(tmp_path: Path) -> None:
    """W3"""
    make_checkpoint(tmp_path, "qwen3_5")
    name = "model.layers.0.linear_attn.in_proj_z.weight"

    def quantize(tensors: Tensors) -> Tensors:
        return tensors | {name: tensors[name].to(torch.float8_e4m3fn)}

    edit_tensors(tmp_path, quantize)
    assert f"{name} has type F8_E4M3, which is not supported" in refusal(tmp_path)


def test_integers_are_refused_by_name(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama")
    edit_tensors(tmp_path, lambda t: t | {"model.norm.weight": torch.ones(64, dtype=torch.int8)})
    assert "model.norm.weight has type I8" in refusal(tmp_path)


@pytest.mark.parametrize("saved_tied", [False, True])
def test_not_tied_and_no_head(tmp_path: Path, saved_tied: bool) -> None:
    """W5"""
    make_checkpoint(tmp_path, "llama", Variant(tied=saved_tied))
    edit_config(tmp_path, tie_word_embeddings=False)
    without(tmp_path, "lm_head")
    assert "tie_word_embeddings = false, but there is no lm_head.weight" in refusal(tmp_path)


def test_tied_with_an_equal_head(tmp_path: Path) -> None:
    """W5"""
    make_checkpoint(tmp_path, "llama", Variant(tied=True))

    def repeat(tensors: Tensors) -> Tensors:
        return tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}

    edit_tensors(tmp_path, repeat)
    opened = open_checkpoint(tmp_path)
    assert opened.config.tie_word_embeddings
    assert "left out lm_head.weight (equal to the embedding" in opened.report.text()


def test_tied_with_another_head(tmp_path: Path) -> None:
    """W5: transformers does not tie them either."""
    made = make_checkpoint(tmp_path, "llama")
    edit_config(tmp_path, tie_word_embeddings=True)
    opened = open_checkpoint(tmp_path)
    assert not opened.config.tie_word_embeddings
    assert torch.equal(opened.weights()["lm_head.weight"], made.state_dict()["lm_head.weight"])
    assert "lm_head.weight differs from the embedding: used" in opened.report.text()
    reloaded = type(made.model).from_pretrained(tmp_path)
    loaded_head = reloaded.get_parameter("lm_head.weight")
    assert torch.equal(loaded_head, made.state_dict()["lm_head.weight"])


def test_tied_and_only_the_head_was_saved(tmp_path: Path) -> None:
    """W5"""
    made = make_checkpoint(tmp_path, "qwen2")
    edit_config(tmp_path, tie_word_embeddings=True)
    without(tmp_path, "embed_tokens")
    opened = open_checkpoint(tmp_path)
    assert opened.config.tie_word_embeddings
    head = made.state_dict()["lm_head.weight"]
    assert torch.equal(opened.weights()["embed_tokens.weight"], head)
    assert "model.embed_tokens.weight is tied to lm_head.weight" in opened.report.text()


@pytest.mark.parametrize("model_type", HYBRIDS)
def test_presence_of_a_head_changes_nothing_else(tmp_path: Path, model_type: str) -> None:
    """W1, W7: mtp tensors are read, and neither norms nor any other weight depend on them."""
    made = make_checkpoint(tmp_path, model_type, Variant(mtp=True))
    with_head = open_checkpoint(tmp_path)
    assert len(with_head.config.mtp_layers) == 1
    weights = with_head.weights()
    for name, tensor in fuse_experts(made.mtp).items():
        assert torch.equal(weights[name], tensor), name
    assert len(without(tmp_path, r"^mtp\.")) > 10
    plain = open_checkpoint(tmp_path)
    assert plain.config.mtp_layers == ()
    assert plain.config.norm == with_head.config.norm
    assert plain.config.layers == with_head.config.layers
    for spec in plain.plan.weights:
        assert torch.equal(plain.weights()[spec.name], weights[spec.name])


def test_an_incomplete_head_is_refused(tmp_path: Path) -> None:
    """P14"""
    make_checkpoint(tmp_path, "qwen3_5", Variant(mtp=True))
    gone = without(tmp_path, r"^mtp\.(norm|fc|layers\.0\.self_attn\.q_norm)\.")
    message = refusal(tmp_path)
    assert "3 missing: " in message
    assert all(name in message for name in gone)


def test_heads_deeper_than_the_checkpoint_are_refused(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "qwen3_5", Variant(mtp=True))
    edit_config(tmp_path, mtp_num_hidden_layers=2)
    assert "missing: mtp.layers.1.input_layernorm.weight" in refusal(tmp_path)


def test_vision_and_rotary_tensors_are_left_out_in_one_line_each(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "qwen3_5_moe", Variant(nested=True))
    prefix = "model.language_model.layers.3.self_attn"
    extra = {f"{prefix}.rotary_emb.inv_freq": torch.ones(4)}
    edit_tensors(tmp_path, lambda tensors: tensors | extra)
    lines = open_checkpoint(tmp_path).report.text().splitlines()
    assert lines[0].startswith("qwen3_5_moe_text: F32 160 tensors")
    assert sum("vision tower" in line for line in lines) == 1
    assert f"left out {prefix}.rotary_emb.inv_freq (rotary frequencies" in "\n".join(lines)
    assert "experts stacked: 8 weights" in lines


@pytest.mark.parametrize("prefix", ["", "language_model.", "model.language_model."])
def test_names_under_every_prefix(tmp_path: Path, prefix: str) -> None:
    made = make_checkpoint(tmp_path, "qwen3")

    def rename(tensors: Tensors) -> Tensors:
        return {re.sub(r"^model\.", prefix, name): t for name, t in tensors.items()}

    edit_tensors(tmp_path, rename)
    norm = open_checkpoint(tmp_path).weights()["norm.weight"]
    assert torch.equal(norm, made.state_dict()["model.norm.weight"])


def test_fields_that_mean_nothing_to_us_are_reported(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama")
    assert "config fields" not in open_checkpoint(tmp_path).report.text()
    edit_config(tmp_path, attention_multiplier=0.5)
    assert "that nothing uses: attention_multiplier" in open_checkpoint(tmp_path).report.text()


def test_tokenizer_is_where_the_weights_are(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama")
    assert open_checkpoint(str(tmp_path)).tokenizer == TokenizerDirectory(tmp_path)


def test_paths_that_are_no_checkpoint(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing")
    assert "has no config.json: not a Hugging Face checkpoint" in refusal(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"")
    assert "name the file a.gguf" in refusal(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "name its directory" in refusal(tmp_path / "model.safetensors")
    (tmp_path / "notes.txt").write_text("no model is in here, but enough bytes")
    assert "notes.txt is no GGUF file" in refusal(tmp_path / "notes.txt")


def test_a_head_is_loaded_where_it_is_used(tmp_path: Path) -> None:
    """P14: asked for and not there is an error; not asked for, it takes no memory."""
    make_checkpoint(tmp_path, "qwen3_5", Variant(mtp=True))
    headers = read_headers(tmp_path)
    used = settle_mtp_weights(headers, EngineConfig(speculate="mtp"))
    unused = settle_mtp_weights(headers, EngineConfig(speculate="lookup"))
    assert used is headers
    names = {name for name in headers.binding.used if name.startswith("mtp.")}
    assert {*headers.binding.used} - {*unused.binding.used} == names
    assert f"left out {len(names)} tensors such as mtp." in unused.report.text()
    sizes = [model_memory(each, EngineConfig()) for each in (used, unused)]
    assert sizes[0].weights > sizes[1].weights
    assert [t.name for t in sizes[0].specs[-1].per_sequence] == ["last_hidden"]
    assert len(sizes[0].specs) == len(sizes[1].specs) + 1
    without(tmp_path, r"^mtp\.")
    with pytest.raises(ConfigError, match="'mtp' is not available: the model has no multi-token"):
        settle_mtp_weights(read_headers(tmp_path), EngineConfig(speculate="mtp"))
