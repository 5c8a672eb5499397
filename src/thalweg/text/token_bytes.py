"""The bytes a token stands for: a tokenizer's decoder read as a rule for one token at a time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    import tokenizers

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True, slots=True)
class TokenBytesRule:
    """How the vocabulary spells bytes.

    A text is the bytes of its tokens, joined, read as UTF-8, less one leading space if
    `strips_space`: sentencepiece vocabularies put one before the first word.
    """

    to_bytes: Callable[[str], bytes]
    strips_space: bool = False


def token_bytes_rule(core: tokenizers.Tokenizer) -> TokenBytesRule:
    """The rule of `core`'s decoder: byte-level BPE, or sentencepiece with bytes as `<0xE4>`.

    Others (word pieces, CTC, ...) decode a token by its neighbours; they raise `CheckpointError`.
    """
    if core.decoder is None:
        raise CheckpointError("the tokenizer has no decoder; byte-level or sentencepiece is needed")
    steps = _flat(json.loads(core.decoder.__getstate__()))
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return TokenBytesRule(_byte_level)
    if kinds == ["Metaspace"]:
        strips = steps[0]["prepend_scheme"] != "never"
        return TokenBytesRule(_sentencepiece(steps[0]["replacement"]), strips)
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and kinds[3:] in ([], ["Strip"]):
        space = steps[0]["pattern"].get("String")
        strip = steps[3] if kinds[3:] else {"content": " ", "start": 0, "stop": 0}
        known = space and steps[0]["content"] == strip["content"] == " " and not strip["stop"]
        if known and strip["start"] in (0, 1):
            return TokenBytesRule(_sentencepiece(space), strip["start"] == 1)
    raise CheckpointError(
        f"the tokenizer's decoder {' + '.join(kinds)} is not implemented: "
        "byte-level or sentencepiece is needed"
    )


def _flat(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for part in decoder["decoders"] for step in _flat(part)]


def byte_alphabet() -> list[str]:
    """The character by which byte-level vocabularies write each byte: itself where it prints.

    The others take the characters from U+0100 on, in order. First used by GPT-2.
    """
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in prints else next(spare)) for byte in range(256)]


_BYTE_OF = {char: byte for byte, char in enumerate(byte_alphabet())}


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:
        return token.encode()


def _sentencepiece(space: str) -> Callable[[str], bytes]:
    def to_bytes(token: str) -> bytes:
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes.fromhex(match[1])
        return token.replace(space, " ").encode()

    return to_bytes
