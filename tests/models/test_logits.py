"""Criterion 2: logits against transformers, for every architecture and every layout of a file.

transformers computes norms, rotations, softmax and the delta rule in float32 whatever the model's
dtype; `in_float64` makes those places float64, so that the reference ops can be held to 1e-10.

A random hybrid is badly conditioned in float32: where a head reads next to nothing from its state
(q and k almost orthogonal), its norm blows up what is left, rounding errors too, and transformers'
float32 logits are themselves 1e-4 from its float64 ones. So hybrids are compared in two ways: with
a norm that has a larger eps to 1e-5, and as they are to what transformers itself achieves.
"""

from __future__ import annotations

import copy
import importlib
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from checkpoints import (
    ARCHITECTURES,
    HYBRIDS,
    MOE,
    Variant,
    edit_config,
    make_checkpoint,
)
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import EngineConfig
from thalweg.ids import NULL, SKIP
from thalweg.memory.storage import CacheStorage
from thalweg.models.build import build_model
from thalweg.models.loader import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import transformers

    from checkpoints import Checkpoint
    from thalweg.models.decoder import Decoder

LENGTHS = (1, 2, 63, 64, 65, 200)
PROMPTS = [[(n * 7 + p * p * 3 + p) % 512 for p in range(n)] for n in LENGTHS]
UNEVEN = (1, 5, 2, 57, 1, 63, 3)  # and what is left
BLOCKS_EACH = 16


@dataclass(frozen=True, slots=True)
class Runnable:
    """A model and its pools; prompt i has slot i + 1 and blocks of its own."""

    decoder: Decoder
    storage: CacheStorage

    def logits(self, prompts: Sequence[Sequence[int]], chunks: Sequence[int] = ()) -> list[Tensor]:
        """Of every position of every prompt. Each pass takes a chunk of every prompt; after the
        last named chunk comes the rest."""
        ends = [*accumulate(chunks), max(map(len, prompts))]
        parts: list[list[Tensor]] = [[] for _ in prompts]
        for start, end in zip([0, *ends], ends, strict=False):
            inputs = {
                i: sequence_input(i, prompt[start:end], start)
                for i, prompt in enumerate(prompts)
                if len(prompt) > start < end
            }
            if not inputs:
                continue
            num_rows = sum(len(each.token_ids) for each in inputs.values())
            batch = ForwardBatch.ragged(list(inputs.values()), range(num_rows), block_size=16)
            with torch.inference_mode():
                logits = self.decoder.logits(self.decoder(batch, self.storage.layers))
            rows = logits.split([len(each.token_ids) for each in inputs.values()])
            for i, part in zip(inputs, rows, strict=True):
                parts[i].append(part)
        return [torch.cat(each) for each in parts]


def sequence_input(index: int, tokens: Sequence[int], start: int) -> SequenceInput:
    blocks = range(1 + index * BLOCKS_EACH, 1 + (index + 1) * BLOCKS_EACH)
    slot = index + 1
    stores = [*[SKIP] * (len(tokens) - 1), slot]
    return SequenceInput(tokens, start, blocks, slot if start else NULL, stores)


def load(path: Path, dtype: str = "float32", kernels: str = "torch") -> Runnable:
    config = EngineConfig(dtype=dtype, kernels=kernels)
    decoder = build_model(open_checkpoint(path), config, max_model_len=512).model
    storage = CacheStorage(
        decoder.cache_specs, 1 + BLOCKS_EACH * len(PROMPTS), 1 + len(PROMPTS), block_size=16
    )
    return Runnable(decoder, storage)


def well_conditioned(path: Path, model_type: str, variant: Variant | None = None) -> Checkpoint:
    """As `make_checkpoint`, but float32 is enough to tell what its logits are."""
    checkpoint = make_checkpoint(path, model_type, variant)
    if model_type not in HYBRIDS:
        return checkpoint
    eps = 0.1
    edit_config(path, rms_norm_eps=eps)
    config: Any = copy.deepcopy(checkpoint.model.config)
    config.get_text_config().rms_norm_eps = eps
    return replace(checkpoint, model=rebuilt(checkpoint.model, config))


def rebuilt(model: transformers.PreTrainedModel, config: Any) -> transformers.PreTrainedModel:
    """The same weights under another config, in float32."""
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    other: Any = type(model)(config)
    other.load_state_dict(model.state_dict())
    return other.eval()


def expected(model: transformers.PreTrainedModel) -> list[Tensor]:
    run: Any = model
    with torch.inference_mode():
        return [run(torch.tensor([prompt]), use_cache=False).logits[0] for prompt in PROMPTS]


class Float64Torch:
    """The torch module, in which float32 means float64."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def in_float64(model_type: str) -> Iterator[None]:
    modeling = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    rope = importlib.import_module("transformers.modeling_rope_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling, "torch", Float64Torch())
        patch.setattr(rope, "torch", Float64Torch())
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def expected_in_float64(checkpoint: Checkpoint) -> list[Tensor]:
    with in_float64(checkpoint.model_type):
        config = copy.deepcopy(checkpoint.model.config)
        logits = expected(rebuilt(checkpoint.model, config).double())
    assert all(each.dtype == torch.float64 for each in logits)
    return logits


def error(got: Sequence[Tensor], want: Sequence[Tensor]) -> float:
    """The largest difference in units of the largest logit, over all prompts."""
    return max(
        float((a.double() - b.double()).abs().max() / b.abs().max())
        for a, b in zip(got, want, strict=True)
    )


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_float32_logits_are_those_of_transformers(tmp_path: Path, model_type: str) -> None:
    checkpoint = well_conditioned(tmp_path, model_type)
    want = expected(checkpoint.model)
    model = load(tmp_path)
    assert [len(each) for each in want] == list(LENGTHS)
    assert error(model.logits(PROMPTS), want) < 1e-5
    assert error(model.logits(PROMPTS, UNEVEN), want) < 1e-5
    assert error(model.logits(PROMPTS, [1] * 200), want) < 1e-5
    alone = [model.logits([prompt])[0] for prompt in PROMPTS]
    assert error(alone, want) < 1e-5


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_float64_reference_logits_are_those_of_transformers(
    tmp_path: Path, model_type: str
) -> None:
    checkpoint = make_checkpoint(tmp_path, model_type)
    want = expected_in_float64(checkpoint)
    model = load(tmp_path, "float64", "reference")
    got = model.logits(PROMPTS)
    assert error(got, want) < 1e-10
    cut = model.logits(PROMPTS, UNEVEN)
    assert all(torch.equal(a, b) for a, b in zip(got, cut, strict=True))
    # And float32 is as near to this as it is in transformers.
    theirs = error(expected(checkpoint.model), want)
    assert error(load(tmp_path).logits(PROMPTS), want) < 3 * theirs + 1e-5


LAYOUTS = [
    *[(t, Variant(sharded=True)) for t in ARCHITECTURES],
    *[(t, Variant(tied=True)) for t in ARCHITECTURES],
    *[(t, Variant(experts=e)) for t in MOE for e in ("fused", "separate")],
    *[(t, Variant(mtp=True)) for t in HYBRIDS],
    *[
        (t, variant)
        for t in ("qwen3_5", "qwen3_5_moe")
        for variant in (
            Variant(nested=True),
            Variant(nested=True, sharded=True, mtp=True, tied=True),
        )
    ],
    ("qwen3_5_moe", Variant(nested=True, mtp=True, experts="separate")),
    ("qwen3_next", Variant(sharded=True, mtp=True, experts="fused")),
]


def name_of(value: object) -> str:
    if not isinstance(value, Variant):
        return str(value)
    flags = [name for name in ("nested", "sharded", "mtp", "tied") if getattr(value, name)]
    return "-".join([*flags, *([value.experts] if value.experts != "saved" else [])])


@pytest.mark.parametrize(("model_type", "variant"), LAYOUTS, ids=name_of)
def test_layouts_of_a_file_change_nothing(
    tmp_path: Path, model_type: str, variant: Variant
) -> None:
    checkpoint = well_conditioned(tmp_path, model_type, variant)
    model = load(tmp_path)
    assert error(model.logits(PROMPTS), expected(checkpoint.model)) < 1e-5


ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
)


@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope["rope_type"])
@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
def test_scaled_rotations_are_those_of_transformers(
    tmp_path: Path, model_type: str, rope: dict[str, Any]
) -> None:
    checkpoint = make_checkpoint(tmp_path, model_type)
    config: Any = copy.deepcopy(checkpoint.model.config)
    config.rope_parameters = {"rope_theta": 10_000.0} | rope
    scaled = rebuilt(checkpoint.model, config)
    scaled.save_pretrained(tmp_path)
    want = expected(scaled)
    assert error(want, expected(checkpoint.model)) > 1e-2
    assert error(load(tmp_path).logits(PROMPTS), want) < 1e-5


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_bfloat16_checkpoints_are_used_as_they_are_stored(tmp_path: Path, model_type: str) -> None:
    """Loaded as float32 they give what transformers' float32 copy of them gives."""
    checkpoint = well_conditioned(tmp_path, model_type, Variant(dtype=torch.bfloat16))
    model = rebuilt(checkpoint.model, checkpoint.model.config)
    assert error(load(tmp_path).logits(PROMPTS), expected(model)) < 1e-5
