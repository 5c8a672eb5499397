"""Amounts of memory for people."""

from __future__ import annotations


def format_nbytes(nbytes: int) -> str:
    """In the largest binary unit that leaves at least 1."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
