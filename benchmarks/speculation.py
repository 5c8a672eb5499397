"""What drafts cost and what they bring.

    python benchmarks/speculation.py MODEL --threads 2                   # the mechanism
    python benchmarks/speculation.py SmolLM2.gguf --threads 2 --edit     # prompt lookup at work

The mechanism: answers to random prompts are computed plainly, then again with an oracle that drafts
what is known to come, or always something else; by each rollback, engines in turn, on one copy of
the weights. The tokens are compared, too. The speed of a step does not depend on what a model
says, so one with random weights will do. The best of the repetitions counts.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from in_turn import heading, table
from thalweg import LLM, SamplingParams
from thalweg.config import EngineConfig, Rollback
from thalweg.engine.admission import admit
from thalweg.engine.engine import Engine
from thalweg.engine.loading import make_parts
from thalweg.engine.speculation import Speculation
from thalweg.memory.plan import plan_caches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thalweg.engine.loading import LoadedEngine
    from thalweg.speculative.drafter import DraftRow

PROMPT, LONGEST = 64, 1024
EDITS = {
    "a text": """Correct the spelling mistakes in this text and write it again:

The river rises in the hills above Norden and runs south for ninety kilometers. Near the vilage of
Altmark it is joined by the Lauter, a smaller streem that carries water only in spring. Below the
bridge the valley widens.""",
    "code": """Add a type annotation to the functions of this Python code. Answer with all of it.

```python
def area(width, height):
    \"\"\"The area of a rectangle.\"\"\"
    if width < 0 or height < 0:
        raise ValueError("width and height must not be negative")
    return width * height


def perimeter(width, height):
    \"\"\"The perimeter of a rectangle.\"\"\"
    if width < 0 or height < 0:
        raise ValueError("width and height must not be negative")
    return 2 * (width + height)
```""",
}


@dataclass(eq=False)
class Oracle:
    """Knows how each prompt goes on."""

    answers: Mapping[tuple[int, ...], Sequence[int]]
    is_right: bool

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        return [self._guess(row) for row in rows]

    def _guess(self, row: DraftRow) -> tuple[int, ...]:
        done = len(row.tokens) - PROMPT
        coming = self.answers[tuple(row.tokens[:PROMPT])][done : done + row.num_drafts]
        return tuple(coming if self.is_right else (token ^ 1 for token in coming))


@dataclass(frozen=True, slots=True)
class Run:
    """Answers under way, from the first token of the last one on."""

    answers: dict[tuple[int, ...], list[int]]
    seconds: float
    num_steps: int
    num_tokens: int

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def ms_per_step(self) -> float:
        return 1e3 * self.seconds / self.num_steps


class Bench:
    def __init__(self, loaded: LoadedEngine, args: argparse.Namespace) -> None:
        self.loaded, self.args = loaded, args
        rng = Random(0)
        size = loaded.limits.vocab_size
        self.prompts = [tuple(rng.choices(range(size), k=PROMPT)) for _ in range(args.sequences)]

    def engine(self, rollback: Rollback | None = None, oracle: Oracle | None = None) -> Engine:
        options: dict[str, Any] = (
            {} if rollback is None else {"speculate": "lookup", "rollback": rollback.value}
        )
        config = EngineConfig(
            max_num_seqs=self.args.sequences,
            num_drafts=self.args.num_drafts,
            prefix_cache=False,
            **options,
        )
        plan = plan_caches(
            self.loaded.shared.specs,
            config,
            cache_memory=self.args.cache_memory << 20,
            model_max_len=LONGEST,
        )
        parts = make_parts(self.loaded.shared, config, plan)
        if oracle is not None:
            drafting = Speculation(oracle, num_drafts=self.args.num_drafts)
            parts = replace(parts, speculation=drafting)
        return Engine(parts)

    def run(self, engine: Engine, num_seqs: int) -> Run:
        prompts = {str(i): prompt for i, prompt in enumerate(self.prompts[:num_seqs])}
        answers: dict[tuple[int, ...], list[int]] = {prompt: [] for prompt in prompts.values()}
        params = SamplingParams(temperature=0, max_tokens=self.args.tokens, ignore_eos=True)
        for name, prompt in prompts.items():
            engine.add_request(admit(name, prompt, params, limits=self.loaded.limits))
        start, num_steps, num_tokens = 0.0, 0, 0
        while engine.has_work:
            step = engine.step()
            for delta in step.deltas:
                answers[prompts[delta.request_id]] += [token.id for token in delta.tokens]
            if not start and all(answers.values()):
                start = time.perf_counter()
            elif start:
                num_steps += 1
                num_tokens += sum(len(delta.tokens) for delta in step.deltas)
        return Run(answers, time.perf_counter() - start, num_steps, num_tokens)

    def mechanism(self) -> str:
        plain = {n: self.run(self.engine(), n) for n in (1, self.args.sequences)}
        known = plain[self.args.sequences].answers
        engines = {("plain", n): (self.engine(), n) for n in plain}
        for rollback in Rollback:
            kept, rejected = Oracle(known, True), Oracle(known, False)
            engines[f"all kept, {rollback.value}", 1] = (self.engine(rollback, kept), 1)
            engines[f"all rejected, {rollback.value}", 1] = (self.engine(rollback, rejected), 1)
            many = self.args.sequences
            engines[f"all kept, {rollback.value}", many] = (self.engine(rollback, kept), many)
        best: dict[tuple[str, int], Run] = {}
        for _ in range(self.args.repeats):
            for key, (engine, num_seqs) in engines.items():
                run = self.run(engine, num_seqs)
                assert run.answers == {p: known[p] for p in run.answers}, f"{key} changes tokens"
                best[key] = min(best.get(key, run), run, key=lambda each: each.seconds)
        rows = [
            (
                name,
                str(num_seqs),
                f"{run.tokens_per_s:.1f}",
                f"{run.tokens_per_s / best['plain', num_seqs].tokens_per_s:.2f}",
                f"{run.ms_per_step:.1f}",
                f"{run.ms_per_step / best['plain', num_seqs].ms_per_step:.2f}",
            )
            for (name, num_seqs), run in best.items()
        ]
        columns = (
            f"{self.args.num_drafts} drafts",
            "sequences",
            "tokens/s",
            "of plain",
            "ms a step",
            "of plain",
        )
        return table(columns, rows)


def edits(path: str, args: argparse.Namespace) -> str:
    """Answers to requests for a text with a change, one at a time."""
    params = SamplingParams(temperature=0, max_tokens=200)
    common: dict[str, Any] = {"threads": args.threads, "cache_memory": args.cache_memory << 20}
    plain = LLM(path, prefix_cache=False, **common)
    guessing = LLM(
        path, prefix_cache=False, speculate="lookup", num_drafts=args.num_drafts, **common
    )
    rows = []
    for name, prompt in EDITS.items():
        messages = [{"role": "user", "content": prompt}]
        pairs = [
            (plain.chat(messages, params)[0], guessing.chat(messages, params)[0])
            for _ in range(args.repeats)
        ]
        assert len({output.text for pair in pairs for output in pair}) == 1
        off, on = (
            min(each.timings.generation for each in side) for side in zip(*pairs, strict=True)
        )
        output = pairs[0][1]
        num_tokens, drafts = output.num_generated, output.drafts
        rows.append(
            (
                name,
                str(num_tokens),
                f"{num_tokens / off:.1f}",
                f"{num_tokens / on:.1f}",
                f"{off / on:.2f}",
                f"{drafts.num_kept} of {drafts.num_drafted}",
            )
        )
    columns = ("an edit of", "tokens", "plain tokens/s", "with lookup", "of plain", "drafts kept")
    return table(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--num-drafts", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cache-memory", type=int, default=768, help="MiB of each engine.")
    parser.add_argument("--edit", action="store_true", help="Prompt lookup on texts to be edited.")
    args = parser.parse_args()
    print(heading(args.threads), end="\n\n")
    if args.edit:
        print(edits(args.model, args))
        return
    llm = LLM(args.model, threads=args.threads, cache_memory=1 << 28, max_model_len=LONGEST)
    print(Bench(llm.loaded, args).mechanism())


if __name__ == "__main__":
    main()
