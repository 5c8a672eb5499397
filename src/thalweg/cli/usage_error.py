"""A command line that contradicts itself."""

from __future__ import annotations

from thalweg.errors import ThalwegError


class UsageError(ThalwegError):
    """Options that do not go together, or a file that cannot be read or written."""
