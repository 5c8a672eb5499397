"""An answer as it grows: tokens in, text out, until something ends it."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from thalweg.engine.outputs import CompletionOutput, Delta, FinishReason
from thalweg.text import IncrementalDetokenizer, StopChecker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.scheduler.plan import Token
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer


class Answer:
    def __init__(self, request: Request, index: int, tokenizer: Tokenizer) -> None:
        params = request.params
        self._request = request
        self._index = index
        self._detokenizer = IncrementalDetokenizer(tokenizer, kept=request.kept_special)
        self._stops = StopChecker(params.stop, include_stop=params.include_stop)
        self._text: list[str] = []
        self._tokens: list[Token] = []
        self._stop: str | int | None = None
        self.finish_reason: FinishReason | None = None

    def push(self, token: Token, finish_reason: FinishReason | None) -> Delta:
        """Take a token; `finish_reason` if it is the last for reasons of its own. It may also turn
        out to be the last because it completes a stop string: see `finish_reason` afterwards."""
        params = self._request.params
        self._tokens.append(token)
        is_stop_id = token.id in self._request.stop_ids
        text = "" if is_stop_id and not params.include_stop else self._detokenizer.push(token.id)
        if finish_reason is not None:
            text += self._detokenizer.flush()
        if len(self._tokens) > params.min_tokens:  # before that nothing ends an answer
            text, found = self._stops.push(text)
            if found:
                self._stop, finish_reason = self._stops.matched, "stop"
            elif finish_reason is not None:
                text += self._stops.flush()
        if finish_reason == "stop" and self._stop is None:
            self._stop = token.id
        self._text.append(text)
        self.finish_reason = finish_reason
        return Delta(self._request.id, self._index, text, (token,), finish_reason)

    def num_taken(self, token_ids: Sequence[int]) -> int:
        """How many of these, which may come next, are pushed before a stop string ends it."""
        params = self._request.params
        if not params.stop:
            return len(token_ids)
        detokenizer, stops = self._detokenizer.fork(), copy(self._stops)
        for i, token_id in enumerate(token_ids):
            text = detokenizer.push(token_id)
            is_open = len(self._tokens) + i + 1 > params.min_tokens
            if is_open and stops.push(text)[1]:
                return i + 1
        return len(token_ids)

    def end(self, reason: FinishReason) -> Delta:
        """End it here, with the text that was held back."""
        text = self._stops.push(self._detokenizer.flush())[0] + self._stops.flush()
        self._text.append(text)
        self.finish_reason = reason
        return Delta(self._request.id, self._index, text, (), reason)

    def output(self) -> CompletionOutput:
        """The whole answer, once it has ended."""
        assert self.finish_reason is not None
        return CompletionOutput(
            index=self._index,
            text="".join(self._text),
            token_ids=tuple(token.id for token in self._tokens),
            tokens=tuple(self._tokens),
            finish_reason=self.finish_reason,
            stop=self._stop,
        )
