"""Random checkpoints of real shapes: everything reads them, and what they say is not degenerate."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import make_checkpoint
from gguf_files import llama_cpp_source
from thalweg import LLM, SamplingParams

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = list(range(20, 60))
TINY = make_checkpoint.SHAPES["tiny"]


def answer(path: Path) -> tuple[int, ...]:
    with LLM(path, threads=1) as llm:
        params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=1)
        output = llm.generate(PROMPT, params)[0].outputs[0]
    logprobs = [token.logprob or 0.0 for token in output.tokens]
    assert -8 < sum(logprobs) / 16 < -0.5, "neither uniform nor certain"
    assert len(set(output.token_ids)) > 8
    return output.token_ids


def test_a_checkpoint_is_loaded_and_depends_on_its_seed_alone(
    small_tokenizer_dir: Path, tmp_path: Path
) -> None:
    seeds = {"a": 0, "b": 0, "c": 1}
    for name, seed in seeds.items():
        make_checkpoint.make_checkpoint(
            tmp_path / name, TINY, tokenizer=small_tokenizer_dir, seed=seed
        )
    a, b, c = (answer(tmp_path / name) for name in seeds)
    assert a == b != c


def test_a_prediction_layer_comes_on_request(small_tokenizer_dir: Path, tmp_path: Path) -> None:
    make_checkpoint.make_checkpoint(
        tmp_path / "model", TINY, tokenizer=small_tokenizer_dir, mtp=True
    )
    with LLM(tmp_path / "model", threads=1, speculate="mtp") as llm:
        assert len(llm.loaded.model.mtp_layers) == 1
        assert not llm.loaded.report.skipped


def test_real_shapes_have_their_sizes() -> None:
    """Without writing gigabytes: from what transformers would build."""
    import torch

    sizes = {}
    for name, shape in make_checkpoint.SHAPES.items():
        with torch.device("meta"):
            model = shape.model(shape.config(**shape.values))
        sizes[name] = sum(parameter.numel() for parameter in model.parameters()) / 1e9
    assert sizes["qwen3.5-0.8b"] == pytest.approx(0.752, abs=0.002)
    assert sizes["qwen3.5-moe-1b"] == pytest.approx(0.9, abs=0.1)


def test_the_gguf_form_says_the_same(smollm2_path: Path, tmp_path: Path) -> None:
    program = [sys.executable, make_checkpoint.__file__, "tiny", str(tmp_path / "model")]
    options = ["--gguf", "bf16", "--llama-cpp", str(llama_cpp_source())]
    subprocess.run([*program, "--tokenizer", str(smollm2_path), *options], check=True)
    assert answer(tmp_path / "model.bf16.gguf") == answer(tmp_path / "model")
