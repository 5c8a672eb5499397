"""How one request wants its tokens chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from thalweg.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_KEYS = "token ids >= 0 as keys"


def _check(ok: bool, name: str, value: object, allowed: str) -> None:
    if not ok:
        raise RequestError(f"{name} = {value!r:.80} is not allowed: {allowed}")


def _is_number(value: object) -> bool:
    # `math.isfinite` would fail for an integer that no float can hold.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -inf < value < inf


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """The sampling options of one request; values out of range raise `RequestError`.

    A token is chosen in this order: `logit_bias`, the three penalties, the ban of end-of-text
    ids before `min_tokens`, `temperature`, `top_k`, `top_p`, `min_p`, then one draw whose noise is
    a pure function of (seed, sample index, token index, vocabulary id). Reported logprobs are those
    of the unmodified logits.
    """

    temperature: float = 1.0
    """0 is greedy: the largest logit, ties to the lowest id. At most 100."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose probability reaches this; in (0, 1]."""
    min_p: float = 0.0
    """Keep tokens at least this fraction as likely as the most likely one; in [0, 1]."""
    repetition_penalty: float = 1.0
    """Divide positive and multiply negative logits of seen tokens (prompt and answer).
    In [0.01, 100]."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every token of the answer so far; in [-2, 2]."""
    frequency_penalty: float = 0.0
    """Subtracted once per occurrence in the answer so far; in [-2, 2]."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids; -100 in effect bans, 100 in effect forces."""
    seed: int | None = None
    """0 to 2^64 - 1. Without one a seed is drawn at admission and reported with the result."""
    n: int = 1
    """Answers to the same prompt; the prompt is computed once. 1 to 128."""
    max_tokens: int | None = None
    """Length limit of an answer, at least 1; None is as many as the context holds."""
    min_tokens: int = 0
    """End-of-text and stop ids are banned before this many tokens."""
    stop: Sequence[str] = ()
    """The answer ends before the first of these strings. A single string is accepted."""
    stop_token_ids: Sequence[int] = ()
    """The answer ends at the first of these ids."""
    include_stop: bool = False
    """Keep the stop string, or the stop id's text, at the end of the text."""
    ignore_eos: bool = False
    """The model's own end-of-text ids do not end the answer."""
    logprobs: int | None = None
    """Report the logprob of each token, and of this many most likely ones; 0 to 100."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens; 0 to 100."""

    def __post_init__(self) -> None:
        self._copy_collections()
        self._check_numbers()
        self._check_counts()
        self._check_tokens()

    def _copy_collections(self) -> None:
        """None counts as empty."""
        stop: Any = (self.stop,) if isinstance(self.stop, str) else self.stop
        for name, given, allowed in (
            ("stop", stop, "non-empty strings"),
            ("stop_token_ids", self.stop_token_ids, "integers >= 0"),
        ):
            is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
            _check(given is None or is_list, name, given, allowed)
            object.__setattr__(self, name, tuple(given or ()))
        bias: Any = self.logit_bias
        _check(bias is None or isinstance(bias, Mapping), "logit_bias", bias, TOKEN_KEYS)
        object.__setattr__(self, "logit_bias", dict(bias or {}))

    def _check_numbers(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 100.0),
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 0.01, 100.0),
            ("presence_penalty", -2.0, 2.0),
            ("frequency_penalty", -2.0, 2.0),
        ):
            value = getattr(self, name)
            ok = _is_number(value) and low <= value <= high
            _check(ok, name, value, f"a number from {low:g} to {high:g}")
        ok = _is_number(self.top_p) and 0 < self.top_p <= 1
        _check(ok, "top_p", self.top_p, "a number above 0 and at most 1")

    def _check_counts(self) -> None:
        _check(_is_int(self.top_k) and self.top_k >= 0, "top_k", self.top_k, "an integer >= 0")
        _check(_is_int(self.n) and 1 <= self.n <= 128, "n", self.n, "an integer from 1 to 128")
        most, least = self.max_tokens, self.min_tokens
        ok = most is None or (_is_int(most) and most >= 1)
        _check(ok, "max_tokens", most, "an integer >= 1, or None")
        _check(_is_int(least) and least >= 0, "min_tokens", least, "an integer >= 0")
        if most is not None and least > most:
            raise RequestError(f"min_tokens = {least} is larger than max_tokens = {most}")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            ok = value is None or (_is_int(value) and 0 <= value <= 100)
            _check(ok, name, value, "an integer from 0 to 100, or None")
        if self.seed is not None:
            ok = _is_int(self.seed) and 0 <= self.seed < 2**64
            _check(ok, "seed", self.seed, "an integer from 0 to 2**64 - 1, or None")
        if self.n > 1 and self.temperature == 0:
            raise RequestError(f"n = {self.n} with temperature = 0 gives {self.n} equal answers")

        for name in ("include_stop", "ignore_eos"):
            value = getattr(self, name)
            _check(isinstance(value, bool), name, value, "True or False")

    def _check_tokens(self) -> None:
        for text in self.stop:
            _check(isinstance(text, str) and text != "", "stop", text, "non-empty strings")
        for token in self.stop_token_ids:
            _check(_is_int(token) and token >= 0, "stop_token_ids", token, "integers >= 0")
        for token, bias in self.logit_bias.items():
            _check(_is_int(token) and token >= 0, "logit_bias", token, TOKEN_KEYS)
            ok = _is_number(bias) and -100 <= bias <= 100
            _check(ok, f"logit_bias[{token}]", bias, "a number from -100 to 100")
