"""Makes a `tokenizer.json` of tiktoken ranks, which is how Qwen publishes its vocabularies.

python tools/tiktoken_to_tokenizer.py qwen3_6.tiktoken --family qwen35 --output tokenizer.json

A rank file has a line for each token: its bytes in base 64, and its rank, which is its id. Ranks
imply the merges: a token is merged of the two parts into which the earlier ranks alone cut it. The
text is composed (NFC) first, as Qwen's own tokenizers do before tiktoken.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import decoders, models, processors

from thalweg.text.pre_tokenizer import PRE_TOKENIZERS
from thalweg.text.token_bytes import byte_alphabet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
WRITTEN = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Tokens of their own, but part of the text: a decoder keeps them."""
SPEECH = (
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
)


@dataclass(frozen=True, slots=True)
class Family:
    pre: str
    """A name in `PRE_TOKENIZERS`."""
    added: tuple[str, ...]
    """Tokens after the ranked ones, in the order of their ids."""


FAMILIES = {
    "qwen3": Family("qwen2", CONTROL + WRITTEN),
    "qwen35": Family("qwen35", CONTROL + WRITTEN + SPEECH),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=Path, help="the .tiktoken file")
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--output", type=Path, required=True, help="the tokenizer.json to write")
    options = parser.parse_args(arguments)
    try:
        core = build(read_ranks(options.ranks), FAMILIES[options.family])
    except (OSError, ValueError) as error:
        sys.exit(f"{options.ranks}: {error}")
    core.save(str(options.output))


def read_ranks(path: Path) -> dict[bytes, int]:
    """Raises `ValueError` for what is no rank file, or has gaps in it."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        parts = line.split()
        if not parts:
            continue
        try:
            token, rank = parts
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(f"line {number} is no token and rank") from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise ValueError("the ranks are not 0, 1, 2, ...")
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise ValueError(f"{len(missing)} bytes are no tokens")
    return ranks


def build(ranks: Mapping[bytes, int], family: Family) -> tokenizers.Tokenizer:
    alphabet = byte_alphabet()

    def spelt(token: bytes) -> str:
        return "".join(alphabet[byte] for byte in token)

    vocab = {spelt(token): rank for token, rank in ranks.items()}
    merges = [(spelt(left), spelt(right)) for left, right in find_merges(ranks)]
    whole_words = len({left + right for left, right in merges}) < len(vocab) - 256
    bpe = models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words)
    core = tokenizers.Tokenizer(bpe)
    rules = PRE_TOKENIZERS[family.pre]
    if (normalizer := rules.build_normalizer()) is not None:
        core.normalizer = normalizer
    core.pre_tokenizer = rules.build()
    core.post_processor = processors.ByteLevel(trim_offsets=False)
    core.decoder = decoders.ByteLevel()
    core.add_tokens(
        [
            tokenizers.AddedToken(text, normalized=False, special=text not in WRITTEN)
            for text in family.added
        ]
    )
    return core


def find_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """By rank; a token may have none.

    Words were taken out of Qwen3.5's vocabulary after it was trained. Tokens that contained them
    can be merged of whatever two tokens make them, or of none: then they are whole words only.
    """
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = cut(token, ranks, below=rank)
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
        else:
            pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
            merges += [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
    return merges


def cut(token: bytes, ranks: Mapping[bytes, int], *, below: int) -> list[bytes]:
    """BPE with the ranks below one: lowest first, leftmost first."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(parts[i] + parts[i + 1], below) for i in range(len(parts) - 1)]
        best = min(pairs)
        if best >= below:
            break
        i = pairs.index(best)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


if __name__ == "__main__":
    main()
