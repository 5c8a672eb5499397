"""`python -m tools.train_tiny.export --state DIR`: a directory that transformers and Thalweg load.

Writes weights (bf16), config, tokenizer, chat template and generation config to `DIR/export`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from .checkpoint import save_weights
from .model import TinyModel
from .model_config import ModelConfig, to_json
from .rendering import END_OF_TEXT, IM_END

_TEMPLATE = Path(__file__).parent / "chat_template.jinja"


def load_model(state: Path) -> TinyModel:
    """The model of the run in `state`, as last saved."""
    saved = torch.load(state / "state.pt", weights_only=True)
    model = TinyModel(ModelConfig(**saved["config"]))
    model.load_state_dict(saved["model"])
    return model


def _tokenizer_config(tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    added = {
        str(number): {
            "content": token.content,
            "lstrip": token.lstrip,
            "normalized": token.normalized,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "special": token.special,
        }
        for number, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }


def export(state: Path, folder: Path) -> None:
    """Writes the checkpoint of the run in `state` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    model = load_model(state)
    save_weights(model, folder)
    tokenizer = Tokenizer.from_file(str(state / "tokenizer.json"))
    end, pad = tokenizer.token_to_id(IM_END), tokenizer.token_to_id(END_OF_TEXT)
    files = {
        "config.json": to_json(model.config, eos_token_id=end, pad_token_id=pad),
        "generation_config.json": {
            "eos_token_id": [end, pad],
            "pad_token_id": pad,
            "do_sample": False,
        },
        "tokenizer_config.json": _tokenizer_config(tokenizer, model.config.max_position_embeddings),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    shutil.copy(_TEMPLATE, folder / "chat_template.jinja")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path.home() / ".cache" / "thalweg" / "train_tiny"
    parser.add_argument("--state", type=Path, default=default)
    parser.add_argument("--to", type=Path, help="the folder to write, DIR/export if not given")
    options = parser.parse_args()
    export(options.state, options.to or options.state / "export")


if __name__ == "__main__":
    main()
