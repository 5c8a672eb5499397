"""Trains the byte-level BPE tokenizer, with Qwen's pre-tokenizer and special tokens."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from .mixture import tokenizer_tasks
from .rendering import CONTROL_TOKENS, SPECIAL_TOKENS, pieces
from .tasks import Split, draw
from .tasks.words import ADJECTIVES, CITIES, COLOURS, DAYS, JOBS, MONTHS, NAMES, NOUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The pattern of Qwen3.5's tokenizer: letters in runs, every digit alone.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SAMPLES = 6000
_WORD_REPEATS = 200


def _texts(passages: Sequence[str], seed: int) -> Iterator[str]:
    """Task texts, some prose, and the task words often enough to become tokens, both after a space
    and without one. No random strings: runs of capitals stay single letters."""
    rng = Random(seed)
    tasks = tokenizer_tasks(passages)
    for _ in range(_SAMPLES):
        example = draw(rng.choice(tasks), rng, Split.TRAIN)
        yield "".join(piece.text for piece in pieces(example))
    yield from rng.sample(list(passages), min(len(passages), _SAMPLES // 6))
    for word in (*NAMES, *CITIES, *NOUNS, *ADJECTIVES, *COLOURS, *JOBS, *DAYS, *MONTHS):
        for _ in range(_WORD_REPEATS):
            yield f"{word} {word}"


def train_tokenizer(passages: Sequence[str], vocab_size: int, seed: int) -> Tokenizer:
    """The special tokens come first: `<|endoftext|>` is 0."""
    return with_shown_tags(_train(passages, vocab_size, seed))


def with_shown_tags(tokenizer: Tokenizer) -> Tokenizer:
    """As in Qwen's tokenizers `<think>`, `<tool_call>` and the like are text of the answer; only
    what begins and ends a message is special. (The trainer makes all of them special.)"""
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:
        token["special"] = token["content"] in CONTROL_TOKENS
    return Tokenizer.from_str(json.dumps(content))


def _train(passages: Sequence[str], vocab_size: int, seed: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(t, normalized=False, special=True) for t in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(passages, seed), trainer)
    return tokenizer
