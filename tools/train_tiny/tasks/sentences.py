"""Simple English sentences, each with a question about it: filler for texts and a small task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .example import Example, Task, user
from .words import ADJECTIVES, ANIMALS, CITIES, COLOURS, DAYS, JOBS, NAMES, NOUNS, PLACES

if TYPE_CHECKING:
    from random import Random

_MOTIONS = ["sleeps", "rests", "waits", "sits", "stands", "plays", "hides", "walks", "sings"]
_PREPOSITIONS = ["under", "behind", "near", "beside", "in front of", "above"]
_DEEDS = {
    "buys": "buy",
    "finds": "find",
    "paints": "paint",
    "carries": "carry",
    "sells": "sell",
    "wants": "want",
    "likes": "like",
    "sees": "see",
    "draws": "draw",
    "cleans": "clean",
}


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    question: str
    answer: str


def statement(rng: Random) -> Statement:
    """A sentence that says something one can ask about."""
    name, noun, adjective = rng.choice(NAMES), rng.choice(NOUNS), rng.choice(ADJECTIVES)
    kind = rng.randrange(6)
    if kind == 0:
        animal, verb = rng.choice(ANIMALS), rng.choice(_MOTIONS)
        place = f"{rng.choice(_PREPOSITIONS)} the {noun}"
        return Statement(
            f"The {adjective} {animal} {verb} {place}.",
            f"Where is the {animal}?",
            f"The {animal} is {place}.",
        )
    if kind == 1:
        verb = rng.choice(list(_DEEDS))
        return Statement(
            f"{name} {verb} a {adjective} {noun}.",
            f"What does {name} {_DEEDS[verb]}?",
            f"{name} {verb} a {adjective} {noun}.",
        )
    if kind == 2:
        job, city = rng.choice(JOBS), rng.choice(CITIES)
        question, answer = rng.choice(
            [
                ("Where does {} live?", f"{name} lives in {city}."),
                ("What is {}?", f"{name} is a {job}."),
            ]
        )
        return Statement(f"{name} is a {job} and lives in {city}.", question.format(name), answer)
    if kind == 3:
        colour = rng.choice(COLOURS)
        return Statement(
            f"The {noun} in the {rng.choice(PLACES)} is {colour}.",
            f"What colour is the {noun}?",
            f"The {noun} is {colour}.",
        )
    if kind == 4:
        day, city = rng.choice(DAYS), rng.choice(CITIES)
        return Statement(
            f"On {day} {name} goes to {city} with a {noun}.",
            f"When does {name} go to {city}?",
            f"{name} goes to {city} on {day}.",
        )
    count, place = rng.randint(2, 20), rng.choice(PLACES)
    return Statement(
        f"There are {count} {noun}s in the {place}.",
        f"How many {noun}s are in the {place}?",
        f"There are {count} {noun}s in the {place}.",
    )


def _generate(rng: Random) -> Example:
    statements = [statement(rng) for _ in range(rng.randint(1, 4))]
    asked = rng.choice(statements)
    while sum(s.question == asked.question for s in statements) > 1:
        return _generate(rng)
    text = " ".join(s.text for s in statements)
    return Example([user(f"{text} {asked.question}")], asked.answer, key=text)


READING = Task("reading", _generate, prompt_weight=0.2)
