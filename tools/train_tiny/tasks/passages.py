"""Recall of facts from a long text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .example import Example, Message, Task, assistant, user
from .sentences import statement
from .values import code, number
from .words import ADJECTIVES, CITIES, COLOURS, NAMES, NOUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

_OPENINGS = (
    "Read this text.",
    "Read the text and answer the question.",
    "Here is a long text.",
    "Please read this carefully.",
)


def _fact(rng: Random) -> tuple[str, str, str]:
    """A sentence, a question and its answer."""
    name, noun, adjective = rng.choice(NAMES), rng.choice(NOUNS), rng.choice(ADJECTIVES)
    kind = rng.randrange(4)
    if kind == 0:
        value = code(rng)
        thing = f"the secret code of the {adjective} {noun}"
    elif kind == 1:
        value = number(rng)
        thing = f"the number of the {adjective} {noun}"
    elif kind == 2:
        value = rng.choice(CITIES)
        thing = f"the home of {name}"
    else:
        value = rng.choice(COLOURS)
        thing = f"the favourite colour of {name}"
    return f"T{thing[1:]} is {value}.", f"What is {thing}?", value


def _filler(rng: Random, passages: Sequence[str], words: int) -> list[str]:
    """Sentences of a real passage, or made ones, of about `words` words."""
    sentences: list[str] = []
    count = 0
    if passages and rng.random() < 0.5:
        at = rng.randrange(len(passages))
        while count < words:
            sentences += passages[at % len(passages)].replace(". ", ".\n").split("\n")
            count = sum(len(s.split()) for s in sentences)
            at += 1
    while count < words:
        sentences.append(statement(rng).text)
        count += len(sentences[-1].split())
    while sentences and count - len(sentences[-1].split()) >= words:
        count -= len(sentences.pop().split())
    return sentences


def passage_recall(
    name: str, words: Callable[[Random], int], passages: Sequence[str], max_facts: int = 5
) -> Task:
    """Texts of `words(rng)` words that hide up to `max_facts` facts, asked for in turn."""

    def generate(rng: Random) -> Example:
        sentences = _filler(rng, passages, words(rng))
        facts = {f[1]: f for f in (_fact(rng) for _ in range(rng.randint(1, max_facts)))}
        for sentence, _, _ in facts.values():
            sentences.insert(rng.randrange(len(sentences) + 1), sentence)
        text = " ".join(sentences)
        asked = list(facts.values())
        rng.shuffle(asked)
        opening = f"{rng.choice(_OPENINGS)}\n\n{text}\n\n"
        messages: list[Message] = []
        for _, question, answer in asked[:-1]:
            messages += [user(opening + question), assistant(answer)]
            opening = ""
        messages.append(user(opening + asked[-1][1]))
        return Example(messages, asked[-1][2], key=text)

    return Task(name, generate, prompt_weight=0.05)
