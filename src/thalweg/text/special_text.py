"""Special tokens that a user writes stay text, those that the template writes are tokens.

Both are the same characters once rendered. So the user's are marked before: a character that
occurs nowhere else is put before each character of them, and taken out again afterwards.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from thalweg.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from thalweg.text.tokenizer import Tokenizer

# Noncharacters first: no text is supposed to hold one. Then the private use area.
_MARKS = [*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900)]


class SpecialTextMarker:
    """Marks the special tokens in a conversation and encodes its rendering.

    `given` is all that the rendering can hold: the conversation, and the template itself.
    """

    def __init__(self, tokenizer: Tokenizer, given: Any) -> None:
        self._tokenizer = tokenizer
        self._ids = {token.content: i for i, token in tokenizer.special_tokens.items()}
        self._mark = _unused_mark(_strings(given))
        texts = sorted(map(re.escape, self._ids), key=len, reverse=True)
        self._written_by_user = re.compile("|".join(texts) or "(?!)")
        tokens = sorted(
            tokenizer.special_tokens.values(), key=lambda t: len(t.content), reverse=True
        )
        self._written_by_template = re.compile(
            "|".join(
                (r"\s*" if token.lstrip else "")
                + f"(?<!{self._mark})({re.escape(token.content)})"
                + (r"\s*" if token.rstrip else "")
                for token in tokens
            )
            or "(?!)"
        )

    def mark(self, value: Any) -> Any:
        """A copy in which no string holds a special token."""
        if isinstance(value, str):
            return self._written_by_user.sub(self._spread, value)
        if isinstance(value, dict):
            return {self.mark(key): self.mark(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item) for item in value]
        return value

    def unmark(self, rendered: str) -> str:
        return rendered.replace(self._mark, "")

    def encode(self, rendered: str) -> list[int]:
        """The ids of a rendering of what `mark` returned; as ever where nothing was marked."""
        if self._mark not in rendered:
            return self._tokenizer.encode_fragment(rendered, parse_special=True)
        ids: list[int] = []
        at = 0
        for match in self._written_by_template.finditer(rendered):
            ids += self._encode_text(rendered[at : match.start()])
            ids.append(self._ids[match[match.lastindex or 0]])
            at = match.end()
        return ids + self._encode_text(rendered[at:])

    def _encode_text(self, piece: str) -> list[int]:
        return self._tokenizer.encode_fragment(self.unmark(piece)) if piece else []

    def _spread(self, match: re.Match[str]) -> str:
        return "".join(self._mark + char for char in match[0])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from chain.from_iterable(_strings(part) for pair in value.items() for part in pair)
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_strings, value))


def _unused_mark(strings: Iterable[str]) -> str:
    used = [text for text in strings if not text.isascii()]
    for code in _MARKS:
        if not any(chr(code) in text for text in used):
            return chr(code)
    raise RequestError("a conversation with every private-use character there is, is not allowed")
