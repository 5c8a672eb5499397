"""Held-out accuracy while training, without generating.

Greedy decoding gives exactly the reference answer if and only if, with the reference as input,
every answer token is the model's first choice. So one pass over prompt and answer decides. It asks
for the very text, so it is never kinder than the check of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .batches import LONG, SHORT, Batch, Document, Shape, encode, pack
from .compiling import mixed_precision
from .losses import ahead
from .model import Rows, TinyModel
from .tasks import Split, Task, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Measures:
    """Shares between 0 and 1."""

    accuracy: dict[str, float]  # exact answers of each task
    first_draft: float  # of answer tokens, where the draft is the model's own next token
    second_draft: float  # where it is so again for the chained draft, whatever the first was
    both_drafts: float


# Bounds in tokens for measures that promise a length, of the prompt (first) or the answer.
_PROMPT_TOKENS = {"passage_1000": (1000, 1300)}
_ANSWER_TOKENS = {"copy": (21, 60)}


class HeldOut:
    """A fixed set of test examples, packed once."""

    def __init__(
        self, tokenizer: Tokenizer, tasks: Sequence[Task], *, count: int, seed: int
    ) -> None:
        self._names = [task.name for task in tasks]
        short: list[Document] = []
        long: list[Document] = []
        for i, task in enumerate(tasks):
            rng = Random(f"{seed}-{task.name}")
            wanted = count // 2 if task.name == "passage_1000" else count
            while wanted:
                document = encode(tokenizer, draw(task, rng, Split.TEST), task=i)
                if not fits(task.name, document):
                    continue
                wanted -= 1
                (short if len(document.tokens) <= SHORT.length else long).append(document)
        self._batches = [
            *_packed(short, SHORT.rows, SHORT.length),
            *_packed(long, LONG.rows, LONG.length),
        ]

    def measure(self, model: TinyModel) -> Measures:
        """Runs with gradients on, so that compiled layers are the ones of training."""
        right = torch.zeros(len(self._names))
        asked = torch.zeros(len(self._names))
        drafts = torch.zeros(4)
        for batch in self._batches:
            with mixed_precision():
                choices, first, second = _choices(model, batch)
            wrong = batch.finals & (_behind(choices) != batch.tokens)
            for task, hit in _answers(batch, wrong):
                asked[task] += 1
                right[task] += hit
            drafts += _accepted(batch, choices, first, second)
        accuracy = {n: float(right[i] / asked[i]) for i, n in enumerate(self._names)}
        first_share, second_share, both = (drafts[1:] / drafts[0]).tolist()
        return Measures(accuracy, first_share, second_share, both)


def fits(name: str, document: Document) -> bool:
    prompt = len(document.tokens) - document.answer
    low, high = _PROMPT_TOKENS.get(name, (1, LONG.length - 60))
    least, most = _ANSWER_TOKENS.get(name, (1, 400))
    return low <= prompt <= high and least <= document.answer <= most


def _packed(documents: list[Document], rows: int, length: int) -> list[Batch]:
    packed: list[list[Document]] = [[]]
    for document in documents:
        if sum(len(d.tokens) for d in packed[-1]) + len(document.tokens) > length:
            packed.append([])
        packed[-1].append(document)
    packed += [[]] * (-len(packed) % rows)
    shape = Shape(rows, length)
    return [pack(packed[i : i + rows], shape) for i in range(0, len(packed), rows)]


def _behind(x: Tensor) -> Tensor:
    """x `[B, T]` moved right by one: column p holds the choice for token p."""
    return torch.nn.functional.pad(x[:, :-1], (1, 0), value=-1)


def _answers(batch: Batch, wrong: Tensor) -> list[tuple[int, bool]]:
    """The task of each document in the batch and whether its final answer is right."""
    out = []
    for i in range(batch.tokens.shape[0]):
        for number in batch.documents[i][batch.finals[i]].unique():
            inside = (batch.documents[i] == number) & batch.finals[i]
            out.append((int(batch.tasks[i][inside][0]), not bool(wrong[i][inside].any())))
    return out


def _choices(model: TinyModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """First choices `[B, T]` at each column: of the model for token p + 1, of the draft for p + 2
    and of the chained draft, which continues from the draft's own choice, for p + 3."""
    rows = Rows.from_documents(batch.documents)
    embeds = model.model.embed_tokens
    hidden = model.model(batch.tokens, rows).detach()
    joined = model.mtp.join(embeds(ahead(batch.tokens, 1)), hidden).detach()
    drafted = model.mtp(joined, rows).detach()
    near = batch.finals.clone()  # only columns before or in an answer are asked for
    for steps in (1, 2):
        near |= ahead(batch.finals.long(), steps).bool()

    def choose(x: Tensor) -> Tensor:
        chosen = torch.zeros_like(batch.tokens)
        chosen[near] = model.logits(x[near]).argmax(-1)
        return chosen

    with torch.no_grad():
        first = choose(drafted)
        layer = model.mtp
        rejoined = layer.join(embeds(first), drafted)
        chained = layer.norm(layer.layers[0](rejoined, rows, layer.keys_values(joined)))
        return choose(hidden), first, choose(chained)


def _accepted(batch: Batch, choices: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Counts: columns whose next three tokens are of one final answer, and of those the ones where
    the first, the second and both drafts are the model's own choices."""
    inside = ahead(batch.finals.long(), 1).bool()
    for steps in (2, 3):
        inside &= ahead(batch.finals.long(), steps).bool()
        inside &= ahead(batch.documents, steps, fill=-1) == batch.documents
    one = (first == ahead(choices, 1))[inside]
    two = (second == ahead(choices, 2))[inside]
    return torch.stack([inside.sum(), one.sum(), two.sum(), (one & two).sum()]).float()
