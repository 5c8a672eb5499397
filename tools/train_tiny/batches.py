"""Examples as tokens, and rows packed with whole documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .rendering import pieces
from .tasks import Example, Split, assistant, draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from tokenizers import Tokenizer

    from .mixture import Share


@dataclass(frozen=True, slots=True)
class Document:
    task: int  # index of its share or of its measure
    tokens: list[int]
    weights: list[float]  # loss weight of predicting each token; 1 where the model writes
    answer: int  # tokens of the final answer, at the end


@dataclass(frozen=True, slots=True)
class Shape:
    rows: int
    length: int


SHORT = Shape(8, 512)
LONG = Shape(3, 1344)


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything `[B, T]`."""

    tokens: Tensor  # int64
    weights: Tensor  # fp32, of predicting the token here; 0 at a document's first token and padding
    documents: Tensor  # int64, the number of the document a token belongs to
    tasks: Tensor  # int64, its task
    finals: Tensor  # bool, tokens of final answers


def encode(
    tokenizer: Tokenizer, example: Example, *, task: int = 0, prompt_weight: float = 0.0
) -> Document:
    tokens: list[int] = []
    weights: list[float] = []
    answer = 0
    for piece in pieces(example):
        ids = tokenizer.encode(piece.text).ids
        tokens += ids
        weights += [1.0 if piece.written else prompt_weight] * len(ids)
        answer = len(ids)
    weights[0] = 0.0
    return Document(task, tokens, weights, answer)


def _conversation(share: Share, rng: Random, split: Split) -> Example:
    """Up to `share.chained` examples, one after the other."""
    examples = [draw(share.task, rng, split) for _ in range(rng.randint(1, share.chained))]
    earlier = [m for e in examples[:-1] for m in (*e.messages, assistant(e.answer))]
    last = examples[-1]
    return Example([*earlier, *last.messages], last.answer, last.key, last.tools, last.thinking)


def documents(tokenizer: Tokenizer, shares: Sequence[Share], rng: Random) -> Iterable[Document]:
    """Training documents without end."""
    weights = [share.weight for share in shares]
    while True:
        task = rng.choices(range(len(shares)), weights)[0]
        share = shares[task]
        example = _conversation(share, rng, Split.TRAIN)
        yield encode(tokenizer, example, task=task, prompt_weight=share.task.prompt_weight)


def fill(source: Iterable[Document], shape: Shape, patience: int = 12) -> Batch:
    """Rows of `shape` filled first-fit, until `patience` documents in turn found no place."""
    rows: list[list[Document]] = [[] for _ in range(shape.rows)]
    free = [shape.length] * shape.rows
    misses = 0
    for document in source:
        size = len(document.tokens)
        place = next((i for i, room in enumerate(free) if room >= size), None)
        if place is None:
            misses += 1
            if misses == patience:
                break
            continue
        rows[place].append(document)
        free[place] -= size
    return pack(rows, shape)


def pack(rows: Sequence[Sequence[Document]], shape: Shape) -> Batch:
    """Padding is a document of its own, with weight 0."""
    size = (shape.rows, shape.length)
    batch = Batch(
        torch.zeros(size, dtype=torch.int64),
        torch.zeros(size),
        torch.zeros(size, dtype=torch.int64),
        torch.zeros(size, dtype=torch.int64),
        torch.zeros(size, dtype=torch.bool),
    )
    for i, row in enumerate(rows):
        at = 0
        for number, document in enumerate(row):
            end = at + len(document.tokens)
            batch.tokens[i, at:end] = torch.tensor(document.tokens)
            batch.weights[i, at:end] = torch.tensor(document.weights)
            batch.documents[i, at:end] = number
            batch.tasks[i, at:end] = document.task
            batch.finals[i, end - document.answer : end] = True
            at = end
        batch.documents[i, at:] = len(row)
    return batch
