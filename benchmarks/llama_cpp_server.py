"""Continuous batching over a `LlamaSession`, with the rule of llama.cpp's server: a batch has one
token of every running answer, then as much of the waiting prompts as there is room for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llama_cpp_peer import BATCH_SIZE, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_cpp_peer import LlamaSession


@dataclass(slots=True, eq=False)
class Answer:
    prompt: Sequence[int]
    num_new: int
    start: int = 0
    """Tokens that the slot has already, before the prompt."""
    tokens: list[int] = field(default_factory=list)
    num_computed: int = 0

    def next_rows(self, seq: int, room: int) -> list[Row]:
        position = self.start + self.num_computed
        if self.tokens:
            return [Row(seq, position, self.tokens[-1], wanted=True)]
        part = self.prompt[self.num_computed : self.num_computed + room]
        last = len(self.prompt) - 1 - self.num_computed
        return [Row(seq, position + i, token, wanted=i == last) for i, token in enumerate(part)]


def serve(
    session: LlamaSession, answers: Sequence[Answer], *, num_slots: int, clear: bool = True
) -> None:
    """Fill in `tokens` of all answers. Without `clear` slot i keeps what it has for answer i."""
    waiting = deque(answers)
    slots: list[Answer | None] = [None] * num_slots
    while waiting or any(slots):
        for seq, slot in enumerate(slots):
            if slot is None and waiting:
                if clear:
                    session.remove(seq)
                slots[seq] = waiting.popleft()
        rows: list[Row] = []
        busy = [(seq, answer) for seq, answer in enumerate(slots) if answer is not None]
        for seq, answer in sorted(busy, key=lambda each: not each[1].tokens):
            new = answer.next_rows(seq, BATCH_SIZE - len(rows))
            answer.num_computed += len(new)
            rows += new
        made = session.decode(rows)
        for row, token in zip((row for row in rows if row.wanted), made, strict=True):
            made_for = slots[row.seq]
            assert made_for is not None
            made_for.tokens.append(token)
            if len(made_for.tokens) == made_for.num_new:
                slots[row.seq] = None
