"""What a task produces: a conversation, the tools on offer and the answer that is right."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

Message = dict[str, Any]  # as in the OpenAI chat API


class Split(Enum):
    """Train and test instances are disjoint: a hash of the instance decides."""

    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Example:
    """One question. With `thinking` the answer begins inside the `<think>` part, which the
    generation prompt has opened."""

    messages: list[Message]
    answer: str
    key: str  # what makes the instance what it is; its hash decides the split
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = False


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def matches(example: Example, text: str) -> bool:
    """The usual check: the same text, but for space around it."""
    return text.strip() == example.answer.strip()


@dataclass(frozen=True, slots=True)
class Task:
    """A generator of examples and the check of an answer to one of them."""

    name: str
    generate: Callable[[Random], Example]
    check: Callable[[Example, str], bool] = matches
    prompt_weight: float = 0.0  # loss weight of the prompt's tokens, answers have 1


def split_of(key: str) -> Split:
    """One instance in ten is for testing."""
    return Split.TEST if zlib.crc32(key.encode()) % 10 == 0 else Split.TRAIN


def draw(task: Task, rng: Random, split: Split) -> Example:
    """The next example of `split`."""
    while True:
        example = task.generate(rng)
        if split_of(example.key) is split:
            return example
