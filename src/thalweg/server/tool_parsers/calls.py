"""Tool calls in an answer's text, as it grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.server.tags import CALL_CLOSE, CALL_OPEN, TagFinder
from thalweg.server.tool_parsers.call_reader import CallSink, Malformed

if TYPE_CHECKING:
    from thalweg.server.tool_parsers.call_reader import CallReader, Characters


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of one call. The `arguments` of its pieces, joined, are JSON text."""

    index: int
    name: str | None
    """Set on a call's first piece."""
    arguments: str


@dataclass(frozen=True, slots=True)
class CallsSplit:
    content: str
    calls: tuple[CallDelta, ...]


class CallParser:
    """Tells calls from the text around them; what it finds depends on the text alone.

    White space beside calls is dropped. What is no call after all stays text, unless its name was
    passed on already: then its arguments end where they went wrong, and `has_broken_call` is set.
    """

    def __init__(self, reader: CallReader, max_calls: int | None = None) -> None:
        """`max_calls`: what comes after so many calls is dropped."""
        self._reader = reader
        self._max_calls = max_calls
        self._opening = TagFinder(CALL_OPEN)
        self._closing: TagFinder | None = None  # set while the end of a call is looked for
        self._call: _OpenCall | None = None
        self._space = ""
        self._follows_call = False  # nothing but white space was seen since
        self.num_complete = 0
        self._num_named = 0

    @property
    def is_over(self) -> bool:
        """Nothing that follows counts."""
        return self.num_complete == self._max_calls

    @property
    def has_broken_call(self) -> bool:
        """Some call was begun and is not, or not yet, complete."""
        return self._num_named > self.num_complete

    def push(self, text: str) -> CallsSplit:
        content: list[str] = []
        calls: list[CallDelta] = []
        rest: str | None = text
        while rest is not None and (rest or self._call is not None) and not self.is_over:
            if self._closing is not None:
                rest = self._closing.push(rest).after
                if rest is not None:
                    self._closing = None
            elif self._call is None:
                found = self._opening.push(rest)
                content.append(self._trimmed(found.before, before_call=found.after is not None))
                rest = found.after
                if rest is not None:
                    self._call = _OpenCall(self._reader)
            else:
                rest = self._read(self._call, rest, content=content, calls=calls)
        return CallsSplit("".join(content), tuple(calls))

    def flush(self) -> CallsSplit:
        """At the end of the text; a call that has not got as far as its name stays text."""
        if self.is_over:
            return CallsSplit("", ())
        text = self._opening.flush()
        if self._call is not None and self._call.sink.name is None:
            text = CALL_OPEN + self._call.text
        content = self._trimmed(text, before_call=False)
        return CallsSplit(content + self._space, ())

    def _read(
        self, call: _OpenCall, text: str, *, content: list[str], calls: list[CallDelta]
    ) -> str | None:
        """-> what is left of the text once the call has ended, else None"""
        was_named = call.sink.name is not None
        num_read = call.push(text)
        if call.sink.name is not None:
            arguments = call.sink.take()
            name = None if was_named else call.sink.name
            self._num_named += not was_named
            if name is not None or arguments:
                calls.append(CallDelta(self._num_named - 1, name, arguments))
        if not (call.is_complete or call.is_malformed):
            return None
        self._call = None
        self.num_complete += call.is_complete
        if call.sink.name is None:
            content.append(self._trimmed(CALL_OPEN + call.text, before_call=False))
        else:
            self._closing = TagFinder(CALL_CLOSE)
            self._follows_call = True
            if call.is_malformed:  # it may have been the closing tag that was wrong here
                return call.text[-len(CALL_CLOSE) :] + text[num_read:]
        return text[num_read:]

    def _trimmed(self, text: str, *, before_call: bool) -> str:
        text = self._space + text
        if self._follows_call:
            text = text.lstrip()
            self._follows_call = not text
        kept = text.rstrip()
        self._space = "" if before_call else text[len(kept) :]
        return kept


class _OpenCall:
    def __init__(self, reader: CallReader) -> None:
        self.sink = CallSink()
        self.text = ""
        self.is_complete = False
        self.is_malformed = False
        self._characters: Characters[None] = reader(self.sink)
        next(self._characters)

    def push(self, text: str) -> int:
        """-> how many characters were read: all, unless it has ended"""
        for i, char in enumerate(text, start=1):
            self.text += char
            try:
                self._characters.send(char)
            except StopIteration:
                self.is_complete = True
                return i
            except Malformed:
                self.is_malformed = True
                return i
        return len(text)
