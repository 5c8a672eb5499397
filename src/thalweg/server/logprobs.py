"""Tokens and their logprobs in the two forms that OpenAI gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.outputs import Token
    from thalweg.text import Tokenizer


@dataclass(frozen=True, slots=True)
class LogprobsView:
    tokenizer: Tokenizer

    def chat(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """`choices[].logprobs` of a chat answer."""
        content = [
            {
                **self._token(token.id, token.logprob),
                "top_logprobs": [self._token(i, logprob) for i, logprob in token.top],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def completion(self, tokens: Sequence[Token], offset: int) -> dict[str, Any]:
        """`choices[].logprobs` of a completion; `offset`: where in its text the tokens begin."""
        texts = [self.text(token.id) for token in tokens]
        offsets = [offset]
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        return {
            "tokens": texts,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {self.text(i): logprob for i, logprob in token.top} or None for token in tokens
            ],
            "text_offset": offsets[:-1],
        }

    def text(self, token_id: int) -> str:
        return self._bytes(token_id).decode("utf-8", errors="replace")

    def _token(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        data = self._bytes(token_id)
        text = data.decode("utf-8", errors="replace")
        return {"token": text, "logprob": logprob, "bytes": list(data)}

    def _bytes(self, token_id: int) -> bytes:
        """Nothing for an id beyond the vocabulary: a model's logits may be wider."""
        known = token_id < self.tokenizer.vocab_size
        return self.tokenizer.token_bytes(token_id) if known else b""


def without_end(tokens: Sequence[Token], *, ended_by_token: bool) -> Sequence[Token]:
    """The token that ended an answer is no part of its text."""
    return tokens[:-1] if ended_by_token else tokens
