"""What `thalweg bench` tells: where and with what was measured, and the figures."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from thalweg import __version__
from thalweg.cli.inspect_report import inspection
from thalweg.cli.machine import machine_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg import LLM
    from thalweg.cli.bench import Case

COLUMNS = ("model", "size", "params", "dtype", "threads", "sequences", "test", "t/s")


@dataclass(frozen=True, slots=True)
class Measured:
    case: Case
    seconds: tuple[float, ...]
    """Of each repetition."""

    @property
    def rates(self) -> list[float]:
        """Tokens per second, of all sequences together."""
        num_tokens = self.case.num_tokens * self.case.num_seqs
        return [num_tokens / each for each in self.seconds]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.rates)

    @property
    def spread(self) -> float:
        """Sample standard deviation; 0 for one repetition."""
        return statistics.stdev(self.rates) if len(self.seconds) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What is the same for all measurements of a run."""

    version: str
    commit: str | None
    """Of the checkout that runs; None: it is none. `-dirty`: with changes."""
    date: str
    machine: str
    model: str
    architecture: str
    weights: str
    """The stored type of most bytes."""
    num_parameters: int
    nbytes: int
    dtype: str
    kernels: str
    num_threads: int

    @classmethod
    def about(cls, llm: LLM, path: str) -> Self:
        found = inspection(path)
        kinds = dict.fromkeys(choice.kernel for choice in llm.loaded.execution.choices)
        return cls(
            version=__version__,
            commit=_commit(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine_name(),
            model=Path(path).name,
            architecture=found.architecture,
            weights=max(found.tensor_types, key=lambda each: each.nbytes).dtype_name,
            num_parameters=found.sizes.num_parameters,
            nbytes=found.sizes.nbytes,
            dtype=llm.config.dtype,
            kernels="+".join(kinds),
            num_threads=llm.loaded.num_threads,
        )

    def heading(self) -> str:
        """One line about the run and the head of a Markdown table."""
        commit = f" ({self.commit})" if self.commit else ""
        rule = " | ".join("---:" if name in COLUMNS[-1:] else "---" for name in COLUMNS)
        return (
            f"thalweg {self.version}{commit}, {self.machine}, kernels {self.kernels}, {self.date}\n"
            f"\n| {' | '.join(COLUMNS)} |\n| {rule} |"
        )

    def row(self, measured: Measured) -> str:
        cells = (
            f"{self.architecture} {self.weights}",
            f"{self.nbytes / (1 << 20):.2f} MiB",
            f"{self.num_parameters / 1e6:.2f} M",
            self.dtype,
            str(self.num_threads),
            str(measured.case.num_seqs),
            measured.case.name,
            f"{measured.mean:.2f} ± {measured.spread:.2f}",
        )
        return f"| {' | '.join(cells)} |"

    def as_json(self, measured: Sequence[Measured]) -> str:
        """A list with an object for each measurement, which repeats what is common."""
        rows = [
            {
                **asdict(self),
                "test": each.case.name,
                **asdict(each.case),
                "seconds": each.seconds,
                "tokens_per_second": each.mean,
                "stddev": each.spread,
            }
            for each in measured
        ]
        return json.dumps(rows, ensure_ascii=False, indent=2)


def _commit() -> str | None:
    """Only of a checkout that this very file belongs to: a virtual environment may lie in some
    other one."""
    here = Path(__file__).resolve()

    def git(*words: str) -> str | None:
        try:
            run = subprocess.run(
                ["git", "-C", str(here.parent), *words], capture_output=True, text=True
            )
        except FileNotFoundError:
            return None
        return run.stdout.strip() if run.returncode == 0 else None

    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--dirty", "--exclude=*")
