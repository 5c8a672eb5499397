"""Plans from configs alone, without weights and without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from checkpoints import ARCHITECTURES, HYBRIDS, MOE, edit_config, write_config
from thalweg.config.model import AttentionConfig, GatedDeltaNetConfig, MLPConfig, MoEConfig
from thalweg.models.hf_config import read_hf_config
from thalweg.models.plan import ModelPlan
from thalweg.models.registry import HF, hf_architecture

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.config.model import ModelConfig


def describe(path: Path) -> ModelConfig:
    hf = read_hf_config(path)
    return hf_architecture(hf).describe(hf)


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_every_architecture_is_described_from_its_config_alone(
    tmp_path: Path, model_type: str
) -> None:
    """N16: as many layers with keys and values as full-attention layers, the right router."""
    config = describe(write_config(tmp_path, model_type))
    mixers = [layer.mixer for layer in config.layers]
    hybrid = model_type in HYBRIDS
    kinds = [GatedDeltaNetConfig] * 3 + [AttentionConfig] if hybrid else [AttentionConfig] * 4
    assert [type(mixer) for mixer in mixers] == kinds
    feed_forward = MoEConfig if model_type in MOE else MLPConfig
    assert all(isinstance(layer.mlp, feed_forward) for layer in config.layers)
    assert config.norm.zero_centered == hybrid
    assert len(config.mtp_layers) == int(hybrid)
    assert config.eos_token_ids == (2,)
    weights = ModelPlan.of(config).weights
    with_keys = [w.name for w in weights if re.fullmatch(r"layers\..*\.k_proj\.weight", w.name)]
    assert len(with_keys) == kinds.count(AttentionConfig)


def test_facts_of_a_hybrid(tmp_path: Path) -> None:
    config = describe(write_config(tmp_path, "qwen3_next"))
    gdn, attention = config.layers[0].mixer, config.layers[3].mixer
    assert gdn == GatedDeltaNetConfig(2, 4, 16, 24, 4)
    assert isinstance(attention, AttentionConfig)
    assert (attention.num_heads, attention.num_kv_heads, attention.head_dim) == (4, 2, 32)
    assert attention.qk_norm and attention.output_gate and not attention.qkv_bias
    assert attention.rope.rotary_dim == 8
    assert config.layers[0].mlp == MoEConfig(8, 2, 40, True, 48)
    assert config.mtp_layers[0].mixer == attention


def test_interval_chooses_mixers_where_layer_types_do_not(tmp_path: Path) -> None:
    path = write_config(tmp_path, "qwen3_5")
    edit_config(path, layer_types=None, full_attention_interval=2)
    mixers = [type(layer.mixer) for layer in describe(path).layers]
    assert mixers == [GatedDeltaNetConfig, AttentionConfig] * 2


@pytest.mark.parametrize("model_type", ["qwen3_moe", "qwen3_next"])
def test_dense_layers_among_sparse_ones(tmp_path: Path, model_type: str) -> None:
    path = write_config(tmp_path, model_type)
    edit_config(path, mlp_only_layers=[3], decoder_sparse_step=2)
    kinds = [type(layer.mlp) for layer in describe(path).layers]
    assert kinds == [MLPConfig, MoEConfig, MLPConfig, MLPConfig]


def test_tied_models_have_no_head_of_their_own(tmp_path: Path) -> None:
    path = write_config(tmp_path, "llama")
    assert "lm_head.weight" in {w.name for w in ModelPlan.of(describe(path)).weights}
    edit_config(path, tie_word_embeddings=True)
    assert "lm_head.weight" not in {w.name for w in ModelPlan.of(describe(path)).weights}


def test_names_of_published_checkpoints_are_known() -> None:
    assert {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"} <= HF.keys()


TORCH_FREE = ["registry", "hf_config", "plan", "weight_map", "hf_weights", "binding"]
TORCH_FREE += ["load_report", "safetensors_header", "gguf_header", "gguf_llama"]


@pytest.mark.parametrize("module", TORCH_FREE)
def test_describing_a_model_needs_no_torch(module: str) -> None:
    code = f"import sys, thalweg.models.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
