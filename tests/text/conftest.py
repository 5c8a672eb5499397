"""The text side of a tiny model: a byte-level BPE with ChatML tokens, as checkpoints hold it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from thalweg.text import ChatTemplate, Tokenizer, tokenizer_from_gguf

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
CORPUS = [
    "The river's bed isn't deep; they've measured 1234 metres, we'll see 99 more.",
    "def main(argc: int) -> None:\n    print('hello, world')\n\n\nif x == 10:\n\treturn x ** 2",
    "Größe, naïve café, наука и жизнь, 深い川の流れ, 물이 깊다, नदी गहरी है, 🙂🚀",
    'system user assistant tool im_start im_end <|im_start|> {"name": "get_weather"}',
] * 3


@pytest.fixture(scope="session")
def core() -> tokenizers.Tokenizer:
    core = tokenizers.Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    cut = tokenizers.Regex(words + r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(cut, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(CORPUS, trainer)
    core.add_special_tokens(SPECIAL)
    core.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in ADDED])
    return core


@pytest.fixture(scope="session")
def template_source() -> str:
    return (Path(__file__).parent / "chatml.jinja").read_text()


@pytest.fixture(scope="session")
def model_dir(
    core: tokenizers.Tokenizer, template_source: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("model")
    core.save(str(path / "tokenizer.json"))
    config = {
        "bos_token": None,
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "special": True},
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    ends = [core.token_to_id("<|im_end|>"), core.token_to_id("<|endoftext|>")]
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (path / "chat_template.jinja").write_text(template_source)
    return path


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_directory(model_dir)


@pytest.fixture(scope="session")
def template(model_dir: Path, tokenizer: Tokenizer) -> ChatTemplate:
    template = ChatTemplate.from_directory(model_dir, tokenizer.names)
    assert template is not None
    return template


@pytest.fixture(scope="session")
def reference(model_dir: Path) -> Any:
    """The same checkpoint in transformers."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(model_dir)


@pytest.fixture(scope="session")
def gguf_metadata(core: tokenizers.Tokenizer) -> dict[str, Any]:
    """The same vocabulary as a GGUF file would hold it."""
    model = json.loads(core.to_str())["model"]
    tokens = sorted(core.get_vocab(), key=core.get_vocab().__getitem__)
    types = [3 if token in SPECIAL else 4 if token in ADDED else 1 for token in tokens]
    return {
        "general.architecture": "qwen2",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": core.token_to_id("<|endoftext|>"),
        "tokenizer.ggml.eos_token_id": core.token_to_id("<|im_end|>"),
    }


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    path = os.environ.get("THALWEG_SMOLLM2_GGUF", "")
    if not Path(path).is_file():
        pytest.skip("THALWEG_SMOLLM2_GGUF does not name a file")
    return Path(path)


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    fields = GGUFReader(str(smollm2_path)).fields
    return {key: field.contents() for key, field in fields.items()}


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(smollm2_metadata)
