"""`quantize` and `kv_dtype`: what an engine is told to round, it rounds, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checkpoints import make_checkpoint
from gguf_files import write_gguf
from thalweg import LLM, SamplingParams
from thalweg.config import engine_config
from thalweg.errors import ConfigError
from thalweg.memory.spec import DType
from thalweg.models.headers import read_headers
from thalweg.models.memory import model_memory

if TYPE_CHECKING:
    from pathlib import Path

GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = ["The river", "A", "Once upon a time there was"]


@pytest.mark.parametrize("options", [{"quantize": "q8"}, {"quantize": "q4"}, {"kv_dtype": "bf16"}])
def test_answers_do_not_depend_on_company(tiny_llm_dir: Path, options: dict[str, Any]) -> None:
    with LLM(tiny_llm_dir, max_model_len=256, cache_memory=1 << 22, **options) as llm:
        together = llm.generate(PROMPTS, GREEDY)
        for prompt, output in zip(PROMPTS, together, strict=True):
            alone = llm.generate(prompt, GREEDY)[0]
            assert alone.outputs[0].tokens == output.outputs[0].tokens


@pytest.mark.parametrize(("kind", "least", "most"), [("q8", 0.001, 0.01), ("q4", 0.04, 0.15)])
def test_the_error_is_told(tiny_llm_dir: Path, kind: str, least: float, most: float) -> None:
    with LLM(tiny_llm_dir, max_model_len=64, cache_memory=1 << 22, quantize=kind) as llm:
        rounding = llm.loaded.rounding
        assert rounding is not None
        assert least < rounding.error < most and rounding.error <= rounding.worst_error
        assert rounding.text().startswith(f"quantised to {kind}: {rounding.num_matrices} matrices")
        whole = model_memory(read_headers(tiny_llm_dir), engine_config())
        assert llm.loaded.memory.weights < 0.7 * whole.weights
    with LLM(tiny_llm_dir, max_model_len=64, cache_memory=1 << 22) as llm:
        assert llm.loaded.rounding is None


def test_kv_rows_have_the_type_that_was_asked_for(tiny_llm_dir: Path) -> None:
    headers = read_headers(tiny_llm_dir)
    for name, dtype in (("auto", DType.FLOAT32), ("fp32", DType.FLOAT32), ("bf16", DType.BFLOAT16)):
        specs = model_memory(headers, engine_config(kv_dtype=name)).specs
        assert {t.dtype for spec in specs for t in spec.per_token} == {dtype}
        assert {t.dtype for spec in specs for t in spec.per_sequence} == {DType.FLOAT32}


@pytest.mark.parametrize("kernels", ["torch", "reference"])
def test_other_kernels_round_too(tiny_llm_dir: Path, kernels: str) -> None:
    options: dict[str, Any] = {"quantize": "q8", "kv_dtype": "bf16", "kernels": kernels}
    with LLM(tiny_llm_dir, max_model_len=64, cache_memory=1 << 22, **options) as llm:
        assert llm.generate("The", SamplingParams(temperature=0, max_tokens=3))[0].num_generated


def test_a_quantised_model_is_not_quantised_again(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "hf", "llama")
    write_gguf(tmp_path / "tiny.gguf", tmp_path / "hf", quantization="Q8_0")
    with pytest.raises(ConfigError, match=r"quantised already \(.* is Q8_0\)"):
        model_memory(read_headers(tmp_path / "tiny.gguf"), engine_config(quantize="q4"))


def test_other_kinds_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="quantize = 'q5' is not available: use none, q8, q4"):
        engine_config(quantize="q5")
    with pytest.raises(ConfigError, match="kv_dtype = 'fp8' is not available: use auto, fp32"):
        engine_config(kv_dtype="fp8")
