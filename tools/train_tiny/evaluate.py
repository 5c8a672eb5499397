"""`python -m tools.train_tiny.evaluate --model DIR`: what the checkpoint can do.

Greedy answers to held-out examples of every task through the Thalweg engine, judged by the tasks'
own checks; and, teacher-forced, how often the MTP layer's drafts are the model's own next tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from thalweg import LLM, SamplingParams
from thalweg.models import default_model_path

from . import corpus
from .batches import encode
from .checkpoint import load_weights
from .measure import HeldOut, fits
from .mixture import measured
from .rendering import IM_END
from .tasks import Example, Split, Task, draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BATCH = 64  # conversations of one call


@dataclass(frozen=True, slots=True)
class Score:
    task: str
    right: int
    asked: int
    wrong: list[tuple[str, str]]  # expected and answered, the first few

    @property
    def accuracy(self) -> float:
        return self.right / self.asked


def held_out(task: Task, tokenizer: Tokenizer, count: int, seed: int) -> Iterator[Example]:
    """`count` examples of the test split, of the length that the measure's name promises."""
    rng = Random(f"evaluate-{seed}-{task.name}")
    while count:
        example = draw(task, rng, Split.TEST)
        if fits(task.name, encode(tokenizer, example)):
            count -= 1
            yield example


def answers(llm: LLM, examples: Sequence[Example]) -> list[str]:
    """Greedy, as text with its special tokens: tool calls are made of them."""
    params = SamplingParams(temperature=0.0, max_tokens=400)
    prompts = [
        llm.render(e.messages, tools=e.tools or None, enable_thinking=e.thinking) for e in examples
    ]
    outputs = [output.outputs[0] for output in llm.generate(prompts, params)]
    texts = [llm.tokenizer.decode(output.token_ids, skip_special=False) for output in outputs]
    return [text.removesuffix(IM_END) for text in texts]


def score(llm: LLM, task: Task, examples: Sequence[Example]) -> Score:
    texts: list[str] = []
    for at in range(0, len(examples), _BATCH):
        texts += answers(llm, examples[at : at + _BATCH])
    hits = [task.check(e, text) for e, text in zip(examples, texts, strict=True)]
    wrong = [(e.answer, t) for e, t, hit in zip(examples, texts, hits, strict=True) if not hit]
    return Score(task.name, sum(hits), len(hits), wrong[:3])


def evaluate(model: Path, data: Path, count: int, seed: int) -> dict[str, object]:
    """Accuracy of every task and acceptance of the drafts, printed as they come."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tasks = measured(corpus.passages(data, Split.TEST))
    accuracy = {}
    with LLM(model, max_num_batched_tokens=2048) as llm:
        for task in tasks:
            start = time.perf_counter()
            found = score(llm, task, list(held_out(task, tokenizer, count, seed)))
            accuracy[task.name] = found.accuracy
            seconds = time.perf_counter() - start
            print(f"{task.name:20} {found.right:4} of {found.asked}  {seconds:5.1f} s", flush=True)
            for expected, answered in found.wrong:
                print(f"    expected {expected!r:.70}\n    answered {answered!r:.70}")
    drafts = HeldOut(tokenizer, tasks, count=min(count, 50), seed=seed).measure(load_weights(model))
    print(f"drafts: first {drafts.first_draft:.1%}, second {drafts.second_draft:.1%}")
    return {
        "accuracy": accuracy,
        "examples_per_task": count,
        "first_draft": drafts.first_draft,
        "second_draft": drafts.second_draft,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=default_model_path())
    parser.add_argument(
        "--data", type=Path, default=Path.home() / ".cache" / "thalweg" / "train_tiny" / "data"
    )
    parser.add_argument("--count", type=int, default=100, help="examples a task")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    corpus.fetch(options.data)
    figures = evaluate(options.model, options.data, options.count, options.seed)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
