"""Token ids to text, one at a time."""

from __future__ import annotations

import codecs
from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thalweg.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """The text of a growing answer; the deltas and `flush()` together are `Tokenizer.decode`.

    A character is emitted once its last byte is there. Bytes that are no UTF-8 become U+FFFD when
    nothing that follows could complete them. The work per token does not grow with the answer.
    An id that no token has (logits may be padded beyond the vocabulary) has no text.
    """

    def __init__(self, tokenizer: Tokenizer, *, kept: frozenset[int] = frozenset()) -> None:
        """`kept`: special tokens whose text is text here; that of others is left out."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids - kept
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strips_space = tokenizer.strips_space

    def push(self, token_id: int) -> str:
        """The text that this token completes; often, but not always, the token's own."""
        if token_id in self._skipped or not 0 <= token_id < self._tokenizer.vocab_size:
            return ""
        return self._emit(self._utf8.decode(self._tokenizer.token_bytes(token_id)))

    def fork(self) -> IncrementalDetokenizer:
        """Another one in the same state."""
        twin = copy(self)
        twin._utf8 = copy(self._utf8)
        return twin

    def flush(self) -> str:
        """What is left at the end: U+FFFD if the answer stopped within a character."""
        return self._emit(self._utf8.decode(b"", final=True))

    def _emit(self, text: str) -> str:
        if text and self._strips_space:
            self._strips_space = False
            return text.removeprefix(" ")
        return text
