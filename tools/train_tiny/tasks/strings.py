"""Copy, reverse and uppercase a string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .example import Example, Task, user
from .sentences import statement
from .values import code, number
from .words import ADJECTIVES, NAMES, NOUNS

if TYPE_CHECKING:
    from random import Random

_COPY = (
    "Repeat this text: {}",
    "Copy exactly: {}",
    "Write this again: {}",
    "Say the following: {}",
    "Repeat after me: {}",
    "Copy this string: {}",
)
_REVERSE = ("Reverse this string: {}", "Write backwards: {}", "Reverse {}", "Spell {} backwards.")
_REVERSE_WORDS = ("Reverse the order of these words: {}", "Write these words in reverse order: {}")
_UPPER = (
    "Write in capital letters: {}",
    "Uppercase this: {}",
    "Convert to uppercase: {}",
    "Put this in capitals: {}",
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _word(rng: Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return code(rng)
    if kind == 1:
        return number(rng)
    if kind == 2:
        return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(2, 6)))
    return rng.choice(rng.choice((NOUNS, ADJECTIVES, NAMES)))


def _copied(rng: Random, high: int) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        return code(rng, 3, 2 * high)
    if kind == 1 and high > 8:
        return " ".join(statement(rng).text for _ in range(rng.randint(1, high // 8)))
    return " ".join(_word(rng) for _ in range(rng.randint(2, high)))


def copy(name: str, high: int) -> Task:
    """Strings of up to about `2 * high` tokens."""

    def generate(rng: Random) -> Example:
        text = _copied(rng, high)
        return Example([user(rng.choice(_COPY).format(text))], text, key=text)

    return Task(name, generate)


def _reverse(rng: Random) -> Example:
    if rng.random() < 0.5:
        text = code(rng, 2, 8)
        return Example([user(rng.choice(_REVERSE).format(text))], text[::-1], key=text)
    words = [rng.choice(NOUNS) for _ in range(rng.randint(2, 7))]
    text = " ".join(words)
    answer = " ".join(reversed(words))
    return Example([user(rng.choice(_REVERSE_WORDS).format(text))], answer, key=text)


def _upper(rng: Random) -> Example:
    pools = (NOUNS, ADJECTIVES, NAMES)
    text = " ".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 4)))
    return Example([user(rng.choice(_UPPER).format(text))], text.upper(), key=text)


REVERSE = Task("reverse", _reverse)
UPPER = Task("upper", _upper)
