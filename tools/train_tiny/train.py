"""`python -m tools.train_tiny.train --state DIR --minutes 150`: one piece of the training.

The state (weights, optimiser, step) is saved every few minutes and at the end; the next piece goes
on from there. The data of a step depends on the seed and the step's number alone, so a run in
pieces sees what a run in one piece sees.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer

from . import corpus
from .batches import LONG, SHORT, Batch, documents, fill
from .compiling import compile_layers, mixed_precision
from .losses import LossWeights, batch_losses
from .measure import HeldOut
from .mixture import long_shares, measured, short_shares
from .model import TinyModel
from .model_config import ModelConfig
from .muon import Optimiser, Rates
from .tasks import Split
from .tokenizer import train_tokenizer


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule: warm-up, plateau, and linear decay over the last quarter."""

    total_steps: int
    seed: int = 1
    warmup_steps: int = 50
    long_from: int = 400  # step of the first batch of long rows
    long_every: int = 6
    log_every: int = 50
    measure_every: int = 300
    save_seconds: float = 300.0

    def decaying(self, step: int) -> bool:
        return step > 0.75 * self.total_steps

    def rate(self, step: int) -> float:
        """Share of the plateau's learning rate."""
        left = (self.total_steps - step) / (0.25 * self.total_steps)
        return min(1.0, (step + 1) / self.warmup_steps, max(0.02, left))

    def weights(self, step: int) -> LossWeights:
        """Chained drafts are trained in the decay only: they cost a tenth of the time."""
        return LossWeights(chained=0.15 if self.decaying(step) else 0.0)


class Trainer:
    """A model in training, with its data and its files in `folder`."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        corpus.fetch(folder / "data")
        self._passages = corpus.passages(folder / "data", Split.TRAIN)
        config = ModelConfig()
        self.tokenizer = self._tokenizer(config.vocab_size)
        held_out = measured(corpus.passages(folder / "data", Split.TEST))
        self._held_out = HeldOut(self.tokenizer, held_out, count=24, seed=plan.seed)
        torch.manual_seed(plan.seed)
        self.model = TinyModel(config)
        self._optimiser = Optimiser(self.model, Rates())
        self.step = 0
        self._stopped = False
        self._load()

    def compile(self) -> None:
        compile_layers(self.model)

    def run(self, seconds: float) -> None:
        """Trains for `seconds`, or to the end of the plan."""
        start = saved = time.monotonic()
        tokens, since = 0, start
        while not self._stopped and self.step < self.plan.total_steps:
            if time.monotonic() - start > seconds:
                break
            if self.step % self.plan.measure_every == 0 and self.step:
                self.measure()
            batch, names = self._batch(self.step)
            with mixed_precision():
                losses = batch_losses(self.model, batch, self.plan.weights(self.step))
            losses.total.backward()
            self._optimiser.step(self.plan.rate(self.step))
            tokens += batch.tokens.numel()
            if self.step % self.plan.log_every < 2:
                now = time.monotonic()
                self._log(
                    kind="loss",
                    total=round(losses.total.item(), 5),
                    draft=round(losses.draft, 4),
                    tasks={names[i]: round(x, 4) for i, x in losses.by_task.items()},
                    tokens_per_second=round(tokens / (now - since)),
                )
                tokens, since = 0, now
            self.step += 1
            if time.monotonic() - saved > self.plan.save_seconds:
                self.save()
                saved = time.monotonic()
        if not self._stopped:
            self.measure()
        self.save()

    def stop(self) -> None:
        """Ends `run` after the step at hand; the state is saved."""
        self._stopped = True

    def measure(self) -> None:
        start = time.monotonic()
        measures = self._held_out.measure(self.model)
        self._log(kind="measure", **asdict(measures), seconds=round(time.monotonic() - start, 1))

    def save(self) -> None:
        """Atomic: a reader sees the old file or the new one. `plateau.pt` is the last state before
        the decay, from which a longer run can go on."""
        state = {
            "step": self.step,
            "plan": asdict(self.plan),
            "config": asdict(self.model.config),
            "model": self.model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        part = self.folder / "state.pt.part"
        torch.save(state, part)
        if not self.plan.decaying(self.step):
            shutil.copy(part, self.folder / "plateau.pt")
        part.replace(self.folder / "state.pt")

    def _load(self) -> None:
        path = self.folder / "state.pt"
        if path.exists():
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"])
            self._optimiser.load_state_dict(state["optimiser"])
            self.step = state["step"]

    def _tokenizer(self, vocab_size: int) -> Tokenizer:
        path = self.folder / "tokenizer.json"
        if not path.exists():
            train_tokenizer(self._passages, vocab_size, self.plan.seed).save(str(path))
        return Tokenizer.from_file(str(path))

    def _batch(self, step: int) -> tuple[Batch, list[str]]:
        """The batch of a step and the names of its tasks."""
        rng = Random(f"{self.plan.seed}-{step}")
        is_long = step >= self.plan.long_from and step % self.plan.long_every == 0
        if is_long:
            shares, shape = long_shares(self._passages), LONG
        else:
            shares, shape = short_shares(self._passages, step), SHORT
        batch = fill(documents(self.tokenizer, shares, rng), shape)
        return batch, [share.task.name for share in shares]

    def _log(self, **fields: Any) -> None:
        line = json.dumps({"step": self.step, "time": round(time.time()), **fields})
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(line + "\n")
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path.home() / ".cache" / "thalweg" / "train_tiny"
    parser.add_argument("--state", type=Path, default=default, help="folder of the run")
    parser.add_argument("--minutes", type=float, default=150)
    parser.add_argument("--total-steps", type=int, default=3600, help="end of the decay")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.state.mkdir(parents=True, exist_ok=True)
    (options.state / "pid").write_text(str(os.getpid()))
    trainer = Trainer(options.state, Plan(options.total_steps))
    signal.signal(signal.SIGTERM, lambda *_: trainer.stop())
    trainer.compile()
    trainer.run(options.minutes * 60)


if __name__ == "__main__":
    main()
