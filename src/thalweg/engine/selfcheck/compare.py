"""Where two results of the same request differ first, to the bit."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from thalweg.engine.outputs import RequestOutput
    from thalweg.scheduler.plan import Token

Value = int | float


@dataclass(frozen=True, slots=True)
class Difference:
    """The first one of a pass."""

    request: str
    where: str
    """`answer 0`, or `prompt`."""
    token: int
    """Index in the answer, or in the prompt."""
    what: str
    """`token`, `logprob`, or `token` or `logprob` of `top 1`, ...; `length` of an answer."""
    expected: Value
    found: Value

    def text(self) -> str:
        place = f"{self.request}, {self.where}, token {self.token}: {self.what}"
        return f"{place} {_shown(self.found)} instead of {_shown(self.expected)}"

    def as_json(self) -> dict[str, Any]:
        """With the bits of both values."""
        both = {"expected_bits": bits(self.expected), "found_bits": bits(self.found)}
        return asdict(self) | both


@dataclass(frozen=True, slots=True)
class Comparison:
    num_tokens: int
    num_logprobs: int
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class _Item:
    request: str
    where: str
    token: int
    what: str
    value: Value


def compare(
    expected: Mapping[str, RequestOutput], found: Mapping[str, RequestOutput]
) -> Comparison:
    """Token ids, logprobs and the most likely alternatives of answers and prompts, bit by bit."""
    difference: Difference | None = None
    num_tokens = num_logprobs = 0
    for request, output in expected.items():
        for a, b in zip(_items(request, output), _items(request, found[request]), strict=False):
            num_tokens += a.what == "token"
            num_logprobs += isinstance(a.value, float)
            if difference is None and (a.what != b.what or bits(a.value) != bits(b.value)):
                difference = Difference(request, a.where, a.token, a.what, a.value, b.value)
    return Comparison(num_tokens, num_logprobs, difference)


def bits(value: Value) -> str:
    """Logprobs are float32, or float64 on models of that dtype; equal texts are equal bits."""
    if isinstance(value, int):
        return str(value)
    short = struct.unpack(">f", struct.pack(">f", value))[0]
    is_short = struct.pack(">d", short) == struct.pack(">d", value)
    return "0x" + struct.pack(">f" if is_short else ">d", value).hex()


def _shown(value: Value) -> str:
    return str(value) if isinstance(value, int) else f"{value!r} ({bits(value)})"


def _items(request: str, output: RequestOutput) -> Iterator[_Item]:
    """In the order in which they were made, so that the first difference is nearest its cause."""
    yield from _tokens(request, "prompt", output.prompt_tokens)
    for answer in output.outputs:
        where = f"answer {answer.index}"
        yield _Item(request, where, 0, "length", len(answer.tokens))
        yield from _tokens(request, where, answer.tokens)


def _tokens(request: str, where: str, tokens: Sequence[Token]) -> Iterator[_Item]:
    for index, token in enumerate(tokens, start=int(where == "prompt")):
        if token.logprob is not None:
            yield _Item(request, where, index, "logprob", token.logprob)
        for place, (token_id, logprob) in enumerate(token.top, start=1):
            yield _Item(request, where, index, f"top {place} token", token_id)
            yield _Item(request, where, index, f"top {place} logprob", logprob)
        yield _Item(request, where, index, "token", token.id)
