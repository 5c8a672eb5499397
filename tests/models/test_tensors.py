"""Every canonical weight equals the weight transformers uses, whatever the file's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from checkpoints import (
    ARCHITECTURES,
    HYBRIDS,
    MOE,
    Checkpoint,
    Variant,
    edit_tensors,
    fuse_experts,
    make_checkpoint,
)
from thalweg.config.model import GatedDeltaNetConfig, LayerConfig, MLPConfig
from thalweg.models.hf_weights import HFWeights
from thalweg.models.loader import open_checkpoint
from thalweg.models.plan import WeightSpec

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from checkpoints import Tensors

VARIANTS = [
    *((m, Variant()) for m in ARCHITECTURES),
    *((m, Variant(sharded=True)) for m in ("llama", "qwen3_next")),
    *((m, Variant(tied=True)) for m in ("llama", "qwen3_5")),
    *((m, Variant(dtype=torch.bfloat16)) for m in ("qwen2", "qwen3_5")),
    *((m, Variant(nested=True)) for m in ("qwen3_5", "qwen3_5_moe")),
    ("qwen3_5", Variant(nested=True, tied=True)),
    *((m, Variant(experts=how)) for m in MOE for how in ("fused", "separate")),
    *((m, Variant(mtp=True)) for m in HYBRIDS),
    ("qwen3_next", Variant(mtp=True, experts="fused", sharded=True)),
    ("qwen3_5_moe", Variant(mtp=True, experts="fused", nested=True)),
]


@pytest.mark.parametrize(
    ("model_type", "variant"), VARIANTS, ids=[f"{m}-{i}" for i, (m, _) in enumerate(VARIANTS)]
)
def test_canonical_weights_are_those_of_transformers(
    tmp_path: Path, model_type: str, variant: Variant
) -> None:
    made = make_checkpoint(tmp_path, model_type, variant)
    opened = open_checkpoint(tmp_path)
    weights = opened.weights()
    expected = canonical(made)
    assert {spec.name for spec in opened.plan.weights} == expected.keys()
    for spec in opened.plan.weights:
        tensor = weights[spec.name]
        assert tensor.shape == spec.shape, spec.name
        assert tensor.dtype == variant.dtype, spec.name
        assert torch.equal(tensor, expected[spec.name]), spec.name


def canonical(made: Checkpoint) -> Tensors:
    """From transformers' own model, and for the MTP head from the saved tensors."""
    expected: Tensors = {}
    for name, tensor in made.state_dict().items():
        if not name.startswith("model.visual."):
            expected |= canonical_parts(made, name.removeprefix("model."), tensor)
    if made.model.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    return expected | fuse_experts(made.mtp)


def canonical_parts(made: Checkpoint, name: str, tensor: Tensor) -> Tensors:
    stem, _, part = name.removesuffix(".weight").rpartition(".")
    if part == "conv1d":
        return {name: tensor[:, 0]}
    if part == "in_proj_qkvz":
        return split_projection(made, stem, qkvz=tensor)
    return {} if part == "in_proj_ba" else {name: tensor}


def split_projection(made: Checkpoint, stem: str, *, qkvz: Tensor) -> Tensors:
    """By transformers' own reordering of activations, given the identity as hidden states."""
    module: Any = made.model.get_submodule(f"model.{stem}")
    ba = module.get_parameter("in_proj_ba.weight")
    one = torch.eye(qkvz.shape[1], dtype=qkvz.dtype)[None]
    with torch.no_grad():
        parts = module.fix_query_key_value_ordering(one @ qkvz.T, one @ ba.T)
    q, k, v, z, b, a = (part.flatten(2)[0].T for part in parts)
    projections = {"qkv": torch.cat([q, k, v]), "z": z, "b": b, "a": a}
    return {f"{stem}.in_proj_{part}.weight": rows for part, rows in projections.items()}


def test_interleaved_projection_row_by_row() -> None:
    """2 key heads of K = 2, each with 2 value heads of V = 3: rows written out by hand."""
    gdn = GatedDeltaNetConfig(2, 4, 2, 3, 4)
    # Of the file's rows 0..31, head 0 has q 0-1, k 2-3, v 4-9, z 10-15, and head 1 the rest.
    wanted = {
        "qkv": [0, 1, 16, 17, 2, 3, 18, 19, *range(4, 10), *range(20, 26)],
        "z": [*range(10, 16), *range(26, 32)],
        "b": [0, 1, 4, 5],
        "a": [2, 3, 6, 7],
    }
    layer = LayerConfig(gdn, MLPConfig(8))
    for part, rows in wanted.items():
        weight = WeightSpec(f"layers.0.linear_attn.in_proj_{part}.weight", (len(rows), 5), layer)
        (recipe,) = HFWeights("model.", fused_gdn=True).recipes(weight)
        assert recipe.rows is not None and recipe.rows() == tuple(rows)


def test_parts_of_one_matrix_may_differ_in_dtype(tmp_path: Path) -> None:
    """W3: bf16 and fp32 experts in one stack become fp32, no value changes, others stay bf16."""
    make_checkpoint(tmp_path, "qwen3_5_moe", Variant(experts="separate", dtype=torch.bfloat16))
    before = weights_of(tmp_path)

    def widen(tensors: Tensors) -> Tensors:
        return {
            name: t.float() if ".experts.3." in name or name.endswith("in_proj_a.weight") else t
            for name, t in tensors.items()
        }

    edit_tensors(tmp_path, widen)
    after = weights_of(tmp_path)
    for name, tensor in after.items():
        wide = ".experts." in name or name.endswith("in_proj_a.weight")
        assert tensor.dtype == (torch.float32 if wide else torch.bfloat16), name
        assert torch.equal(tensor.float(), before[name].float()), name


def weights_of(path: Path) -> Tensors:
    opened = open_checkpoint(path)
    weights = opened.weights()
    return {spec.name: weights[spec.name] for spec in opened.plan.weights}


def test_double_precision_is_kept(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path, "llama", Variant(dtype=torch.float64))
    norm = weights_of(tmp_path)["norm.weight"]
    assert norm.dtype == torch.float64
    assert torch.equal(norm, made.state_dict()["model.norm.weight"])


def test_reading_reports_progress_to_the_last_byte(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "qwen3_next")
    opened = open_checkpoint(tmp_path)
    heard: list[tuple[int, int]] = []
    weights = opened.weights(lambda done, total: heard.append((done, total)))
    for spec in opened.plan.weights:
        weights[spec.name]
        weights[spec.name]
    assert len(heard) == opened.report.num_tensors
    assert heard == sorted(heard)
    assert heard[-1] == (opened.report.nbytes, opened.report.nbytes)


def test_writing_to_a_weight_leaves_the_file_alone(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama")
    before = (tmp_path / "model.safetensors").read_bytes()
    open_checkpoint(tmp_path).weights()["norm.weight"].zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before
