"""What the readers of one tool call have in common, whatever its format."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

T = TypeVar("T")
Characters = Generator[None, str, T]
"""Takes one character at each `yield`, so nothing can depend on how a text was cut."""


class Malformed(Exception):
    """What stands between the tags is no call."""


class CallSink:
    """Collects what a reader finds out: first the name, then the arguments as JSON text."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._early: list[str] = []  # arguments that came before the name
        self._new: list[str] = []

    def named(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            raise Malformed
        self.name = name
        self._new = self._early

    def argue(self, text: str) -> None:
        (self._early if self.name is None else self._new).append(text)

    def take(self) -> str:
        """Arguments since the last call."""
        text = "".join(self._new)
        self._new.clear()
        return text


class CallReader(Protocol):
    """Reads the characters between a call's tags; returns once the call is complete."""

    def __call__(self, sink: CallSink) -> Characters[None]: ...


def skip_space() -> Characters[str]:
    """-> the first character that is no white space"""
    while (char := (yield)).isspace():
        pass
    return char


def expect(text: str) -> Characters[None]:
    """Exactly this, after white space."""
    for i, wanted in enumerate(text):
        char = yield from skip_space() if not i else _one()
        if char != wanted:
            raise Malformed


def _one() -> Characters[str]:
    return (yield)


def until(end: str) -> Characters[str]:
    """-> what stands before `end`"""
    text = ""
    while not text.endswith(end):
        text += yield
    return text.removesuffix(end)
