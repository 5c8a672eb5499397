"""Random values that recall tasks hide and ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .words import CODE_SYMBOLS, COLOURS, NOUNS

if TYPE_CHECKING:
    from random import Random


def code(rng: Random, low: int = 3, high: int = 6) -> str:
    """Capital letters and digits, such as `K7QX`."""
    return "".join(rng.choice(CODE_SYMBOLS) for _ in range(rng.randint(low, high)))


def number(rng: Random, low: int = 2, high: int = 5) -> str:
    """Decimal digits without a leading zero."""
    digits = rng.randint(low, high)
    return str(rng.randrange(10 ** (digits - 1), 10**digits))


def value(rng: Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        return code(rng)
    if kind == 1:
        return rng.choice(NOUNS)
    if kind == 2:
        return rng.choice(COLOURS)
    return number(rng)
