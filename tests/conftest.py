"""What several folders' tests share: a small tokenizer, a tiny model directory, the real model."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

from checkpoints import edit_config, make_checkpoint
from thalweg.text import Tokenizer

ROOT = Path(__file__).parent.parent
SMALL_TEXT = (
    "the river runs deep and the bed of the river is the thalweg, alpha beta gamma delta",
    "system user assistant tool name content value 0 1 2 3 4 5 6 7 8 9",
    "深い川の流れ 물이 깊다 🙂🚀 Größe naïve café",
)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models lose more by handing work over than they gain."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Byte-level BPE of 323 tokens with ChatML's special ones: narrower than 512 logits."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(SMALL_TEXT, trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    core.add_special_tokens(special)
    path = tmp_path_factory.mktemp("tokenizer")
    core.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": None, "eos_token": "<|im_end|>"})
    )
    template = Path(__file__).parent / "text" / "chatml.jinja"
    shutil.copy(template, path / "chat_template.jinja")
    return path


@pytest.fixture(scope="session")
def small_tokenizer(small_tokenizer_dir: Path) -> Tokenizer:
    return Tokenizer.from_directory(small_tokenizer_dir)


@pytest.fixture(scope="session")
def tiny_llm_dir(small_tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random qwen3_5 of 512 logits that `LLM` can load. Copy it before changing it."""
    path = tmp_path_factory.mktemp("tiny-llm")
    make_checkpoint(path, "qwen3_5")
    shutil.copytree(small_tokenizer_dir, path, dirs_exist_ok=True)
    end = Tokenizer.from_directory(small_tokenizer_dir).token_to_id("<|im_end|>")
    edit_config(path, eos_token_id=end)
    (path / "generation_config.json").unlink(missing_ok=True)
    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as GGUF; `shared/models.md` of the README says how to get it."""
    named = os.environ.get("THALWEG_SMOLLM2_GGUF")
    found = [Path(named)] if named else sorted((ROOT / "models").glob("*.gguf"))
    if not found or not found[0].is_file():
        pytest.skip("no SmolLM2: set THALWEG_SMOLLM2_GGUF or put the .gguf file in models/")
    return found[0]
