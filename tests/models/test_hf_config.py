"""What configs may look like, and what is refused in them by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from checkpoints import HYBRID, edit_config, write_config
from thalweg.config.model import AttentionConfig, RopeConfig
from thalweg.errors import CheckpointError
from thalweg.models.hf_config import read_hf_config
from thalweg.models.registry import hf_architecture

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.config.model import ModelConfig


def describe(path: Path) -> ModelConfig:
    hf = read_hf_config(path)
    return hf_architecture(hf).describe(hf)


def rope_of(config: ModelConfig) -> RopeConfig:
    mixer = config.layers[-1].mixer
    assert isinstance(mixer, AttentionConfig)
    return mixer.rope


@pytest.mark.parametrize("model_type", ["qwen3_5", "qwen3_5_moe"])
def test_flat_and_nested_spellings_say_the_same(tmp_path: Path, model_type: str) -> None:
    """W6: flat, nested, `_text` or not, ForCausalLM or ForConditionalGeneration."""
    path = write_config(tmp_path, model_type)
    flat = json.loads((path / "config.json").read_text())
    wanted = describe(path)
    inner = flat | {"model_type": f"{model_type}_text"}
    outer = {"model_type": model_type, "vision_config": {"depth": 1}}
    causal, conditional = ["AForCausalLM"], ["AForConditionalGeneration"]
    for spelling in (
        flat | {"model_type": model_type, "architectures": causal},
        inner | {"architectures": causal},
        outer | {"text_config": inner, "architectures": conditional},
        outer | {"text_config": flat | {"model_type": model_type}, "architectures": causal},
        outer | {"text_config": {k: v for k, v in flat.items() if k != "model_type"}},
    ):
        (path / "config.json").write_text(json.dumps(spelling))
        found = describe(path)
        assert found.layers == wanted.layers
        assert found.mtp_layers == wanted.mtp_layers
        assert found.model_type in (model_type, f"{model_type}_text")
        assert found.eos_token_ids == (2,)


def test_old_and_new_rope_keys_say_the_same(tmp_path: Path) -> None:
    path = write_config(tmp_path, "qwen3_next")
    edit_config(path, rope_parameters={"rope_theta": 5e5, "partial_rotary_factor": 0.5})
    new = rope_of(describe(path))
    assert new == RopeConfig(16, 5e5)
    edit_config(path, rope_parameters=None, rope_theta=5e5, partial_rotary_factor=0.5)
    assert rope_of(describe(path)) == new
    edit_config(path, partial_rotary_factor=None)
    assert rope_of(describe(path)).rotary_dim == 8


@pytest.mark.parametrize(
    ("scaling", "params"),
    [
        ({"type": "linear", "factor": 4}, {"factor": 4.0}),
        (
            {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
            | {"original_max_position_embeddings": 512},
            {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
            | {"original_max_position_embeddings": 512.0},
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16, "truncate": False},
            {"factor": 4.0, "beta_fast": 16.0, "truncate": 0.0}
            | {"original_max_position_embeddings": 1024.0},
        ),
    ],
)
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_rope_scaling(
    tmp_path: Path, scaling: dict[str, Any], params: dict[str, float], field: str
) -> None:
    path = write_config(tmp_path, "llama")
    edit_config(path, rope_parameters=None, rope_theta=1e6)
    edit_config(path, **{field: scaling})
    rope = rope_of(describe(path))
    assert rope.theta == 1e6
    assert rope.scaling == scaling.get("rope_type", scaling.get("type"))
    assert rope.params == params


def test_generation_config_names_the_end_ids(tmp_path: Path) -> None:
    path = write_config(tmp_path, "qwen2")
    (path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert describe(path).eos_token_ids == (7, 9)
    (path / "generation_config.json").write_text('{"temperature": 1.0}')
    assert describe(path).eos_token_ids == (2,)


def test_a_window_no_layer_uses_is_fine(tmp_path: Path) -> None:
    path = write_config(tmp_path, "qwen2")
    edit_config(path, layer_types=None, sliding_window=64, use_sliding_window=False)
    assert len(describe(path).layers) == 4
    edit_config(path, use_sliding_window=True, max_window_layers=4)
    assert len(describe(path).layers) == 4


def test_unused_fields_are_known(tmp_path: Path) -> None:
    path = write_config(tmp_path, "llama")
    edit_config(path, attention_multiplier=0.5)
    hf = read_hf_config(path)
    hf_architecture(hf).describe(hf)
    assert hf.unused_fields() == ("attention_multiplier",)


ROPE = HYBRID["rope_parameters"]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"model_type": "mamba9"}, "unknown model_type 'mamba9': known are llama, qwen2"),
    ("llama", {"hidden_act": "gelu"}, 'hidden_act = "gelu" is not supported: only "silu"'),
    ("llama", {"attention_bias": True}, "attention_bias = true is not supported: only false"),
    ("llama", {"mlp_bias": True}, "mlp_bias = true"),
    ("llama", {"num_hidden_layers": None}, "config.json lacks num_hidden_layers"),
    ("llama", {"num_hidden_layers": 0}, "num_hidden_layers = 0 is not supported: an integer >= 1"),
    ("llama", {"num_hidden_layers": True}, "num_hidden_layers = true"),
    ("llama", {"hidden_size": "64"}, 'hidden_size = "64"'),
    ("llama", {"rms_norm_eps": 10**400}, "rms_norm_eps = 1000"),
    ("llama", {"rms_norm_eps": -1}, "rms_norm_eps = -1 is not supported: a number > 0"),
    ("llama", {"tie_word_embeddings": "no"}, 'tie_word_embeddings = "no"'),
    ("llama", {"num_key_value_heads": 3}, "num_key_value_heads = 3 is not supported: a divisor"),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2}}, 'type = "dynamic"'),
    ("llama", {"rope_scaling": {"rope_type": "longrope"}}, 'rope_type = "longrope"'),
    ("llama", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling lacks factor"),
    ("llama", {"rope_scaling": 4}, "rope_scaling = 4 is not supported: an object"),
    ("llama", {"rope_parameters": {"full_attention": ROPE}}, "one set of parameters"),
    ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rotates whole heads"),
    ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantised (fp8)"),
    ("llama", {"quantization_config": {"quant_method": "awq"}}, "quantised (awq)"),
    ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "architectures = "),
    ("llama", {"eos_token_id": "</s>"}, 'eos_token_id = "</s>"'),
    ("qwen2", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    ("qwen2", {"layer_types": ["full_attention"] * 3}, "one entry for each of 4 layers"),
    (
        "qwen2",
        {"layer_types": None, "use_sliding_window": True, "sliding_window": 8}
        | {"max_window_layers": 3},
        "use_sliding_window = true",
    ),
    ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window"),
    ("qwen3_moe", {"num_experts_per_tok": 9}, "num_experts_per_tok = 9"),
    ("qwen3_next", {"mlp_only_layers": [1], "intermediate_size": None}, "lacks intermediate_size"),
    ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate = false"),
    ("qwen3_5", {"output_gate_type": "sigmoid"}, 'output_gate_type = "sigmoid"'),
    ("qwen3_5", {"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings"),
    ("qwen3_5", {"linear_num_value_heads": 3}, "a multiple of linear_num_key_heads = 2"),
    ("qwen3_5", {"rope_parameters": {"partial_rotary_factor": 0.1}}, "3 of 32"),
    ("qwen3_5_moe", {"norm_topk_prob": False}, "norm_topk_prob = false"),
    ("qwen3_moe", {"num_experts": 1 << 40, "num_local_experts": None}, "at most 16384"),
    ("qwen3_5", {"num_hidden_layers": 1 << 40}, "num_hidden_layers = 1099511627776"),
    ("qwen3_5", {"mtp_num_hidden_layers": 1 << 30}, "mtp_num_hidden_layers = 1073741824"),
    ("qwen3_5_moe", {"mlp_only_layers": [0]}, "mlp_only_layers = [0]"),
    ("qwen3_5_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step = 2"),
]


@pytest.mark.parametrize(
    ("model_type", "changes", "message"), REFUSED, ids=[m for _, _, m in REFUSED]
)
def test_refused_by_name(
    tmp_path: Path, model_type: str, changes: dict[str, Any], message: str
) -> None:
    path = write_config(tmp_path, model_type)
    edit_config(path, **changes)
    with pytest.raises(CheckpointError) as caught:
        describe(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_models_inside_unknown_ones_are_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, "llama")
    text = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": text}))
    with pytest.raises(CheckpointError, match="unknown model_type 'llava'"):
        describe(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "config.json is not JSON"),
        ("[" * 100_000, "config.json is not JSON"),
        ("[]", "holds no JSON object"),
        ("{}", "lacks model_type"),
    ],
)
def test_broken_config_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        describe(tmp_path)
