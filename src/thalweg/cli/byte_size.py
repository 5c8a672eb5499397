"""Amounts of memory as people write them."""

from __future__ import annotations

import re

import typer

MOST = 1 << 60
_UNITS = {"": 1, "B": 1}
for _i, _prefix in enumerate("KMGT", start=1):
    _UNITS |= {f"{_prefix}B": 1000**_i, f"{_prefix}IB": 1024**_i, _prefix: 1024**_i}


def parse_byte_size(text: str) -> int:
    """`2GiB` and `2G` are 2 * 1024^3 bytes, `2GB` is 2 * 1000^3, `2048` is itself."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2].upper() not in _UNITS:
        raise typer.BadParameter(f"{text!r} is not a size such as 512MiB, 2GiB or 2147483648")
    size = float(match[1]) * _UNITS[match[2].upper()]
    if size > MOST:
        raise typer.BadParameter(f"{text:.80} is more than {MOST} bytes")
    return int(size)
