"""`<think>` parts of an answer, told apart from the rest as it grows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate
from typing import TYPE_CHECKING

from thalweg.server.tags import THINK_CLOSE, THINK_OPEN, num_ambiguous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Split:
    reasoning: str = ""
    content: str = ""


class _Place(Enum):
    BEFORE = auto()
    INSIDE = auto()
    AFTER = auto()


class ReasoningSplitter:
    """One thinking part at the beginning; white space at its edges belongs to neither side.

    `begins_inside`: the prompt ends with the opening tag. An answer that is cut inside it is all
    reasoning. The result depends on the text alone, never on its pieces.
    """

    def __init__(self, *, begins_inside: bool) -> None:
        self._place = _Place.INSIDE if begins_inside else _Place.BEFORE
        self._held = ""
        self._trims = True  # nothing but white space was seen at this place
        self._thought = begins_inside

    def push(self, text: str) -> Split:
        text, self._held = self._held + text, ""
        reasoning = ""
        if self._place is _Place.BEFORE:
            text = self._open(text)
        if self._place is _Place.INSIDE:
            reasoning, text = self._think(text)
        content = text if self._place is _Place.AFTER else ""
        if self._place is _Place.AFTER and self._trims and self._thought:
            content = content.lstrip()
            self._trims = not content
        return Split(reasoning, content)

    def flush(self) -> Split:
        held, self._held = self._held, ""
        if self._place is _Place.INSIDE:
            return Split(reasoning=held.rstrip())
        return Split(content=held)

    def _open(self, text: str) -> str:
        body = text.lstrip()
        if body.startswith(THINK_OPEN):
            self._place, self._thought = _Place.INSIDE, True
            return body.removeprefix(THINK_OPEN)
        if THINK_OPEN.startswith(body):
            self._held = text
            return ""
        self._place = _Place.AFTER
        return text

    def _think(self, text: str) -> tuple[str, str]:
        """-> reasoning, and what comes after its end."""
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        thought, tag, rest = text.partition(THINK_CLOSE)
        if tag:
            self._place, self._trims = _Place.AFTER, True
            return thought.rstrip(), rest
        sure = text[: len(text) - num_ambiguous(text, THINK_CLOSE)].rstrip()
        self._held = text[len(sure) :]
        return sure, ""


def num_reasoning_tokens(
    tokenizer: Tokenizer, answer: Sequence[int], *, begins_inside: bool
) -> int:
    """Tokens of an answer up to and with the end of its thinking part."""
    pieces = [tokenizer.token_bytes(i) if i < tokenizer.vocab_size else b"" for i in answer]
    text = b"".join(pieces)
    if not (begins_inside or text.lstrip().startswith(THINK_OPEN.encode())):
        return 0
    before, close, _ = text.partition(THINK_CLOSE.encode())
    ends = accumulate(map(len, pieces))
    end = len(before) + len(close)
    return sum(1 for each in ends if each <= end) if close else len(pieces)
