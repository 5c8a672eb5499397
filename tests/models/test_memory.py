"""What is planned is what is taken, of three checkpoints and of the caches."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from checkpoints import edit_config, write_config
from harness import needs_kernels
from thalweg import LLM
from thalweg.ops import extension

if TYPE_CHECKING:
    from pathlib import Path

WIDER: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 640,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 32,
}


def wide_checkpoint(path: Path, model_type: str, tokenizer: Path) -> Path:
    """Wide enough for panels of 32 not to matter."""
    path.mkdir()
    write_config(path, model_type)
    edit_config(path, **WIDER)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.from_pretrained(path)
    )
    model.save_pretrained(path)
    shutil.copytree(tokenizer, path, dirs_exist_ok=True)
    return path


class Packing:
    """Counts the bytes that the kernels pack."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nbytes = 0
        real = extension.kernels().Packed

        def packed(*args: Any) -> Any:
            made = real(*args)
            self.nbytes += made.nbytes
            return made

        monkeypatch.setattr(extension.kernels(), "Packed", packed)


@needs_kernels
@pytest.mark.parametrize("model_type", ["llama", "qwen3_5", "qwen3_next"])
def test_planned_bytes_are_those_taken(
    model_type: str, small_tokenizer_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M13: weights within 2 %, caches to the byte, all of it within the budget."""
    packing = Packing(monkeypatch)
    path = wide_checkpoint(tmp_path / model_type, model_type, small_tokenizer_dir)
    with LLM(path, memory=64 << 20) as llm:
        memory = llm.loaded.memory
        assert memory.weights == pytest.approx(packing.nbytes, rel=0.02)
        assert memory.caches.nbytes == llm.loaded.engine._parts.runner._storage.nbytes
        assert memory.nbytes <= 64 << 20


@needs_kernels
def test_the_same_of_a_gguf(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packing = Packing(monkeypatch)
    with LLM(smollm2_path, memory=256 << 20) as llm:
        assert llm.loaded.memory.weights == pytest.approx(packing.nbytes, rel=0.02)
        assert 0.98 * (256 << 20) <= llm.loaded.memory.nbytes <= 256 << 20


@pytest.mark.parametrize("kernels", ["torch", "reference"])
def test_kernels_that_do_not_pack_take_the_dtype_s_bytes(tiny_llm_dir: Path, kernels: str) -> None:
    with LLM(tiny_llm_dir, kernels=kernels) as llm:
        weights = llm.loaded.memory.weights
    with LLM(tiny_llm_dir, kernels=kernels, dtype="float64") as llm:
        assert llm.loaded.memory.weights == 2 * weights
