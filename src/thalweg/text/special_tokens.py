"""Tokens with a part to play: the beginning and the ends of a text, and their names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thalweg.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    names: Mapping[str, str] = field(default_factory=dict)
    """The variables of a chat template: {"bos_token": "<s>", "eos_token": "</s>", ...}."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    """Every id that ends an answer, the vocabulary's own first."""


def read_special_tokens(path: Path, token_to_id: Callable[[str], int | None]) -> SpecialTokens:
    """From the JSON files beside a `tokenizer.json`, all of them optional.

    Names come from `tokenizer_config.json`, else `special_tokens_map.json`; ids that end an answer
    from the former and `generation_config.json`, and without either from `config.json`.
    """
    names = _names(read_json(path / "special_tokens_map.json"))
    names |= _names(read_json(path / "tokenizer_config.json"))
    eos_ids = [_known(token_to_id, "eos_token", names["eos_token"])] if "eos_token" in names else []
    eos_ids += _ids(path / "generation_config.json")
    bos = names.get("bos_token")
    return SpecialTokens(
        names,
        None if bos is None else _known(token_to_id, "bos_token", bos),
        tuple(dict.fromkeys(eos_ids or _ids(path / "config.json"))),
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file, {} if there is no such file; `CheckpointError` if it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}, not an object")
    return value


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            names[key] = text
    return names


def _ids(path: Path) -> list[int]:
    config = read_json(path)
    value = config.get("eos_token_id", (config.get("text_config") or {}).get("eos_token_id"))
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(each, int) and each >= 0 for each in ids):
        raise CheckpointError(f"{path}: eos_token_id = {value!r} is not allowed: ids or a list")
    return ids


def _known(token_to_id: Callable[[str], int | None], name: str, text: str) -> int:
    found = token_to_id(text)
    if found is None:
        raise CheckpointError(f"{name} {text!r} is not a token of tokenizer.json")
    return found
