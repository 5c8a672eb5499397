"""Answers of a given form: grammars, compiled by llguidance for a vocabulary."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from thalweg.errors import RequestError, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from thalweg.text.tokenizer import Tokenizer


class GrammarCompiler:
    """Compiling takes from a millisecond to seconds; any thread may do it."""

    def __init__(
        self, tokenizer: Tokenizer, *, eos_ids: Iterable[int], text_ids: Iterable[int]
    ) -> None:
        """`text_ids`: special tokens that are text in a grammar, such as those of `<think>`."""
        self._tokenizer = tokenizer
        self._eos_ids = sorted(eos_ids)
        self._special = sorted(tokenizer.special_ids - frozenset(text_ids) | {*self._eos_ids})
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None

    def compile(self, grammar: str, count: int) -> tuple[GrammarConstraint, ...]:
        """`count` constraints of their own for a grammar as llguidance writes it.

        Raises `RequestError` with its words if it is not one, or asks for what is not implemented.
        """
        if not self._eos_ids:
            raise RequestError("a form needs a model that knows how to end its answers")
        vocabulary = self._get_vocabulary()
        _, complaints = LLMatcher.validate_grammar_with_warnings(grammar, vocabulary)
        if complaints:
            raise RequestError(" ".join(complaints[0].split())[:500])
        first = LLMatcher(vocabulary, grammar, log_level=0)
        if first.is_error():
            raise RequestError(" ".join(first.get_error().split())[:500])
        matchers = [first, *(first.deep_copy() for _ in range(count - 1))]
        return tuple(GrammarConstraint(matcher, self._eos_ids) for matcher in matchers)

    def _get_vocabulary(self) -> LLTokenizer:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = LLTokenizer(
                    TokenizerWrapper(_Vocabulary(self._tokenizer, self._eos_ids[0], self._special))
                )
            return self._vocabulary


class GrammarConstraint:
    """Which tokens may follow an answer: a function of the answer alone, whatever was asked
    before."""

    def __init__(self, matcher: LLMatcher, eos_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._read: list[int] = []

    def mask(self, answer: Sequence[int]) -> bytearray | None:
        """A byte a vocabulary id, not 0 where it may be next. None, which is any, after an answer
        that has left the grammar, as drafts can that nobody keeps."""
        follows = self._advance(list(answer))
        if not follows:
            return None
        mask = bytearray(self._matcher.compute_logit_bias())
        if self._matcher.is_error():
            raise RequestFailed(f"the grammar cannot go on: {self._matcher.get_error()}")
        if mask[self._eos_ids[0]]:
            for token in self._eos_ids:
                mask[token] = 1
        return mask

    def _advance(self, answer: list[int]) -> bool:
        same = len(self._read)
        if answer[:same] != self._read:
            pairs = enumerate(zip(self._read, answer, strict=False))
            same = next((i for i, (a, b) in pairs if a != b), min(same, len(answer)))
            self._matcher.rollback(len(self._read) - same)
        new = answer[same:]
        num_read = self._matcher.try_consume_tokens(new) if new else 0
        self._read = answer[: same + num_read]
        return num_read == len(new)


class _Vocabulary:
    """A tokenizer as llguidance wants to see it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, eos_id: int, special: list[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = eos_id
        self.special_token_ids = special
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        return self._tokenizer.encode_fragment(text)
