"""How a command ends, for the shell. A promise: see docs/cli.md."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    SOME_FAILED = 1
    """The command ran; some lines of its input could not be answered, or some bits differ."""
    ERROR = 2
    """Wrong usage, a model that cannot be loaded, or nothing that could be answered."""
    INTERRUPTED = 130
    """By Ctrl-C, as shells count it: 128 + SIGINT."""
