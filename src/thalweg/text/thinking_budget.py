"""An end to reasoning that has gone on for long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.text.tokenizer import Tokenizer

OPEN, CLOSE = b"<think>", b"</think>"


class Constraint(Protocol):
    def mask(self, answer: Sequence[int]) -> bytearray | None: ...


class ThinkingBudget:
    """After `budget` tokens, if the answer is still thinking, the end of the thinking is forced."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        budget: int,
        *,
        begins_inside: bool,
        inner: Constraint | None = None,
    ) -> None:
        """`inner` decides wherever this does not."""
        self._tokenizer = tokenizer
        self._budget = budget
        self._begins_inside = begins_inside
        self._inner = inner
        self._end = tokenizer.encode_fragment("\n</think>\n\n", parse_special=True)

    def mask(self, answer: Sequence[int]) -> bytearray | None:
        """A byte a vocabulary id, not 0 where it may be next; None: any may."""
        place = len(answer) - self._budget
        forced = self._end[place] if 0 <= place < len(self._end) else None
        if forced is not None and self._is_thinking(answer):
            mask = bytearray(self._tokenizer.vocab_size)
            mask[forced] = 1
            return mask
        return None if self._inner is None else self._inner.mask(answer)

    def _is_thinking(self, answer: Sequence[int]) -> bool:
        """At the end of the budget, with nothing but the forced end after it."""
        known = (i for i in answer[: self._budget] if i < self._tokenizer.vocab_size)
        head = b"".join(map(self._tokenizer.token_bytes, known))
        begun = self._begins_inside or head.lstrip().startswith(OPEN)
        tail = list(answer[self._budget :])
        return begun and CLOSE not in head and tail == self._end[: len(tail)]
