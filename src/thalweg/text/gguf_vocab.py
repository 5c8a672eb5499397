"""The tokenizer inside a GGUF file, rebuilt from the file's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import tokenizers
from tokenizers import decoders, models, processors

from thalweg.errors import CheckpointError
from thalweg.text.pre_tokenizer import PRE_TOKENIZERS, PreTokenizer
from thalweg.text.special_tokens import SpecialTokens
from thalweg.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")

_PREFIX = "tokenizer.ggml."
# Values of `token_type`. Unknown tokens are matched like control tokens.
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_SPECIAL_TYPES = (_UNKNOWN, _CONTROL)
# GGUF files name one or two ids that end an answer, their models' configs more. These do, in every
# vocabulary that has them as control tokens.
_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """From all the keys and values of a file; other than byte-level BPE is refused by name."""
    model = _get(metadata, "model", str)
    if model != "gpt2":
        raise CheckpointError(f"{_PREFIX}model = {model!r} is not implemented: 'gpt2'")
    pre = _get(metadata, "pre", str)
    if pre not in PRE_TOKENIZERS:
        allowed = ", ".join(map(repr, PRE_TOKENIZERS))
        raise CheckpointError(f"{_PREFIX}pre = {pre!r} is not implemented: {allowed}")
    tokens = _get(metadata, "tokens", list)
    types = _get(metadata, "token_type", list)
    if len(types) != len(tokens):
        raise CheckpointError(
            f"{_PREFIX}token_type has {len(types)} entries for {len(tokens)} tokens"
        )
    rules = PRE_TOKENIZERS[pre]
    core = _core(tokens, _get(metadata, "merges", list), rules)
    core.add_tokens(
        [
            tokenizers.AddedToken(text, special=kind in _SPECIAL_TYPES, normalized=False)
            for text, kind in zip(tokens, types, strict=True)
            if kind in (*_SPECIAL_TYPES, _USER_DEFINED)
        ]
    )
    special = _special_tokens(metadata, tokens, types)
    if _get(metadata, "add_bos_token", bool, rules.adds_bos):
        if special.bos_id is None:
            raise CheckpointError(f"{_PREFIX}bos_token_id is missing, but texts begin with it")
        bos = tokens[special.bos_id]
        core.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=None, special_tokens=[(bos, special.bos_id)]
        )
    return Tokenizer(core, special)


def _core(tokens: list[Any], merges: list[Any], rules: PreTokenizer) -> tokenizers.Tokenizer:
    ids = {token: i for i, token in enumerate(tokens) if isinstance(token, str) and token}
    if len(ids) != len(tokens):
        raise CheckpointError(
            f"{_PREFIX}tokens: {len(tokens) - len(ids)} of {len(tokens)} are empty or repeated"
        )
    pairs = [_pair(merge, ids) for merge in merges]
    bpe = models.BPE(vocab=ids, merges=pairs, ignore_merges=rules.whole_words)
    core = tokenizers.Tokenizer(bpe)
    if (normalizer := rules.build_normalizer()) is not None:
        core.normalizer = normalizer
    core.pre_tokenizer = rules.build()
    core.decoder = decoders.ByteLevel()
    return core


def _pair(merge: Any, ids: Mapping[str, int]) -> tuple[str, str]:
    left, _, right = merge.partition(" ") if isinstance(merge, str) else ("", "", "")
    if not (left in ids and right in ids and left + right in ids):
        raise CheckpointError(f"{_PREFIX}merges: {merge!r:.80} is not allowed: two tokens of one")
    return left, right


def _special_tokens(
    metadata: Mapping[str, Any], tokens: list[str], types: list[int]
) -> SpecialTokens:
    names = {}
    ids = {}
    for name in ("bos", "eos", "eot", "eom", "unknown", "padding"):
        token_id = _get(metadata, f"{name}_token_id", int, -1)
        if token_id >= len(tokens):
            key = f"{_PREFIX}{name}_token_id"
            raise CheckpointError(f"{key} = {token_id} is not allowed: 0 to {len(tokens) - 1}")
        if token_id >= 0:
            ids[name] = token_id
            short = {"unknown": "unk", "padding": "pad"}.get(name, name)
            names[f"{short}_token"] = tokens[token_id]
    ends = [ids[name] for name in ("eos", "eot", "eom") if name in ids]
    control = {text: i for i, text in enumerate(tokens) if types[i] == _CONTROL}
    ends += [control[text] for text in _ENDS if text in control]
    return SpecialTokens(names, ids.get("bos"), tuple(dict.fromkeys(ends)))


def _get(metadata: Mapping[str, Any], key: str, kind: type[_T], default: _T | None = None) -> _T:
    value = metadata.get(_PREFIX + key, default)
    if value is None:
        raise CheckpointError(f"{_PREFIX}{key} is missing")
    if not isinstance(value, kind):
        raise CheckpointError(f"{_PREFIX}{key} = {value!r:.80} is not allowed: {kind.__name__}")
    return value
