"""Tags in a text that comes in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from thalweg.text import Tokenizer

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
ALL_TAGS = (THINK_OPEN, THINK_CLOSE, CALL_OPEN, CALL_CLOSE)


@dataclass(frozen=True, slots=True)
class Found:
    before: str
    """Text that no later piece can make part of the tag."""
    after: str | None
    """What follows the tag; None: it is not there yet."""


class TagFinder:
    """Looks for one tag; an end that could still become it is held back."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._held = ""

    def push(self, text: str) -> Found:
        text = self._held + text
        before, tag, after = text.partition(self._tag)
        if tag:
            self._held = ""
            return Found(before, after)
        keep = len(text) - num_ambiguous(text, self._tag)
        self._held = text[keep:]
        return Found(text[:keep], None)

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


def num_ambiguous(text: str, tag: str) -> int:
    """Length of the longest end of `text` that begins `tag` and is not all of it."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0


def tag_ids(tokenizer: Tokenizer, tags: Collection[str]) -> frozenset[int]:
    """Those of the tags that are special tokens, whose text would be left out of answers."""
    special = tokenizer.special_tokens
    return frozenset(i for i, token in special.items() if token.content in tags)
