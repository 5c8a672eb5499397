"""Recall of a value from a list of key-value pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .example import Example, Message, Task, assistant, user
from .values import code, number
from .words import ADJECTIVES, COLOURS, NAMES, NOUNS

if TYPE_CHECKING:
    from random import Random

_OPENINGS = (
    "Remember these pairs:",
    "Here is a list:",
    "Keep these values in mind.",
    "Read the list.",
    "These are the entries:",
    "Please remember:",
)
_QUESTIONS = (
    "What is the value of {}?",
    "What is {}?",
    "Tell me the value of {}.",
    "Which value belongs to {}?",
    "Give me the value for {}.",
    "Do you remember {}?",
    "{}?",
    "{}",
)


def _keys(rng: Random, count: int) -> list[str]:
    kind = rng.randrange(3)
    if kind == 0:
        return rng.sample(NAMES, count)
    if kind == 1:
        return rng.sample(NOUNS, count)
    return rng.sample(
        [f"{a} {n}" for a in rng.sample(ADJECTIVES, 6) for n in rng.sample(NOUNS, 8)], count
    )


def _values(rng: Random, count: int) -> list[str]:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.sample(NOUNS, count)
    if kind == 1:
        return [code(rng) for _ in range(count)]
    if kind == 2 and count <= len(COLOURS):
        return rng.sample(COLOURS, count)
    return [number(rng) for _ in range(count)]


def _list(rng: Random, pairs: dict[str, str]) -> str:
    line = rng.choice(
        ["- {}: {}", "- {} = {}", "The {} is {}.", " {}: {}", " {} = {}", "* {} -> {}"]
    )
    joint = rng.choice(["\n", "\n", "\n", " "]) if line.startswith("The") else "\n"
    return joint.join(line.format(*pair) for pair in pairs.items())


def pair_recall(name: str, low: int, high: int, max_questions: int = 6) -> Task:
    """Lists of `low` to `high` pairs with up to `max_questions` questions in turn."""

    def generate(rng: Random) -> Example:
        count = rng.randint(low, high)
        pairs = dict(zip(_keys(rng, count), _values(rng, count), strict=True))
        listing = _list(rng, pairs)
        asked = rng.sample(list(pairs), min(count, rng.randint(1, max_questions)))
        question = rng.choice(_QUESTIONS)
        opening = f"{rng.choice(_OPENINGS)}\n{listing}\n\n"
        messages: list[Message] = []
        for key in asked[:-1]:
            messages += [user(opening + question.format(key)), assistant(pairs[key])]
            opening = ""
        messages.append(user(opening + question.format(asked[-1])))
        return Example(messages, pairs[asked[-1]], key=listing)

    return Task(name, generate)
