"""Turn a sentence into a JSON object of a given shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .example import Example, Task, user
from .words import ADJECTIVES, CITIES, COLOURS, DAYS, JOBS, MONTHS, NAMES, NOUNS

if TYPE_CHECKING:
    from random import Random

_REQUESTS = (
    "Turn this sentence into JSON with the keys {keys}: {text}",
    "Give me a JSON object with {keys}. {text}",
    "Extract {keys} as JSON: {text}",
    "{text} Write this as a JSON object with the keys {keys}.",
    "JSON with {keys}: {text}",
)
_SENTENCES = (
    ("{name} is {age} years old and lives in {city}.", ("name", "age", "city")),
    ("{name} is a {job} from {city}.", ("name", "job", "city")),
    ("{name}, a {job}, is {age}.", ("name", "job", "age")),
    ("{name} buys {count} {item}s for {price} euros.", ("name", "count", "item", "price")),
    ("The {colour} {item} costs {price} euros.", ("colour", "item", "price")),
    ("{name} meets {friend} in {city} on {day}.", ("name", "friend", "city", "day")),
    ("On {day} {name} travels to {city}.", ("day", "name", "city")),
    ("The {item} is {colour} and {quality}.", ("item", "colour", "quality")),
    ("{name} was born in {month} {year} in {city}.", ("name", "month", "year", "city")),
    ("There are {count} {colour} {item}s in {city}.", ("count", "colour", "item", "city")),
)


def _fields(rng: Random) -> dict[str, Any]:
    name, friend = rng.sample(NAMES, 2)
    return {
        "name": name,
        "friend": friend,
        "age": rng.randint(4, 99),
        "city": rng.choice(CITIES),
        "job": rng.choice(JOBS),
        "count": rng.randint(2, 99),
        "item": rng.choice(NOUNS),
        "price": rng.randint(1, 200),
        "colour": rng.choice(COLOURS),
        "quality": rng.choice(ADJECTIVES),
        "day": rng.choice(DAYS),
        "month": rng.choice(MONTHS),
        "year": rng.randint(1900, 2029),
    }


def listed(items: list[str]) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _generate(rng: Random) -> Example:
    template, names = rng.choice(_SENTENCES)
    fields = _fields(rng)
    text = template.format(**fields)
    chosen = rng.sample(names, rng.randint(2, len(names)))
    request = rng.choice(_REQUESTS).format(keys=listed(chosen), text=text)
    answer = json.dumps({key: fields[key] for key in chosen})
    return Example([user(request)], answer, key=text)


def _check(example: Example, text: str) -> bool:
    try:
        return bool(json.loads(text) == json.loads(example.answer))
    except ValueError:
        return False


JSON_OBJECT = Task("json", _generate, _check)
