"""The files of `thalweg generate --input`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from thalweg.cli.usage_error import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""What some readers take for the end of a line; JSON itself would leave them as they are."""


def read_lines(path: str) -> list[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1; `-` is standard input."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--input {path} cannot be read: {error}") from error
    text = text.removeprefix("\ufeff")
    lines = [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise UsageError(f"--input {path} has no lines")
    return lines


def check_output(source: str, target: str | None) -> None:
    """Raises `UsageError` for a target that cannot be written, while nothing is lost by it."""
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"--output {target} cannot be written: it is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"--output {target} cannot be written: no such directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--output {target} cannot be written: no permission")
    if path.exists() and source != "-" and path.samefile(source):
        raise UsageError("--output would overwrite --input")


@contextmanager
def open_output(target: str | None) -> Iterator[TextIO]:
    if target is None or target == "-":
        yield sys.stdout
        return
    # An id may hold what is no character, which JSON can say but UTF-8 cannot.
    with Path(target).open("w", encoding="utf-8", errors="backslashreplace") as file:
        yield file


def write_line(file: TextIO, record: Mapping[str, Any]) -> None:
    """It is with the operating system, whole, when this returns."""
    file.write(json.dumps(record, ensure_ascii=False).translate(_LINE_ENDS) + "\n")
    file.flush()
