"""What a selfcheck has found, as a table and as JSON."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from thalweg import LLM
    from thalweg.engine.selfcheck.check import CheckedPass, SelfCheck

WIDTH = 100


@dataclass(frozen=True, slots=True)
class CheckReport:
    model: str
    kernels: tuple[str, ...]
    """Kinds in use."""
    unpromised: tuple[str, ...]
    """Those of them that promise no equal bits."""
    num_threads: int
    passes: tuple[CheckedPass, ...]

    @classmethod
    def about(cls, llm: LLM, path: str, check: SelfCheck, passes: tuple[CheckedPass, ...]) -> Self:
        kinds = dict.fromkeys(choice.kernel for choice in llm.loaded.execution.choices)
        return cls(
            model=Path(path).name,
            kernels=tuple(kinds),
            unpromised=check.unpromised,
            num_threads=llm.loaded.num_threads,
            passes=passes,
        )

    @property
    def equal(self) -> bool:
        return all(each.passed for each in self.passes)

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "kernels": self.kernels,
            "promised": not self.unpromised,
            "num_threads": self.num_threads,
            "equal": self.equal,
            "passes": [_as_json(each) for each in self.passes],
        }

    def show(self) -> None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=WIDTH)
        title = f"{self.model}, kernels {'+'.join(self.kernels)}, {self.num_threads} threads"
        table = Table(title=title, title_justify="left", caption_justify="left")
        for name in ("pass", "what is different", "what happened", "compared", "bits"):
            table.add_column(name, overflow="fold")
        for each in self.passes:
            table.add_row(each.name, each.about, _happened(each), _compared(each), _verdict(each))
        console.print(table)
        for each in self.passes:
            if (difference := each.comparison.difference) is not None:
                console.print(f"{each.name}: {difference.text()}", soft_wrap=True, highlight=False)
        console.print(self.verdict(), soft_wrap=True, highlight=False)

    def verdict(self) -> str:
        """One sentence, and a second one where nothing was promised."""
        if self.equal:
            total = sum(each.comparison.num_logprobs for each in self.passes)
            text = f"All bits are equal: {total} logprobs and every token."
        elif any(each.comparison.difference for each in self.passes):
            text = "Bits differ."
        else:
            text = "No bits differ, but some passes did not show what they are for."
        if self.unpromised:
            kinds = ", ".join(self.unpromised)
            text += (
                f" These kernels promise no equal bits: {kinds} (see docs/numerics.md);"
                " the compiled ones, cpu, do."
            )
        return text


@contextmanager
def checking_progress(num_passes: int) -> Iterator[Callable[[CheckedPass], CheckedPass]]:
    """For people only, on standard error: what hands a finished pass on and counts it."""
    console = Console(stderr=True)
    columns = (TextColumn("checking"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=num_passes)

        def count(each: CheckedPass) -> CheckedPass:
            bar.update(task, advance=1)
            return each

        yield count


def _as_json(each: CheckedPass) -> dict[str, Any]:
    difference = each.comparison.difference
    return {
        "name": each.name,
        "about": each.about,
        "passed": each.passed,
        "num_tokens": each.comparison.num_tokens,
        "num_logprobs": each.comparison.num_logprobs,
        "happened": asdict(each.happened),
        "missing": each.missing,
        "difference": None if difference is None else difference.as_json(),
        "seconds": each.seconds,
    }


def _happened(each: CheckedPass) -> str:
    counts = asdict(each.happened)
    del counts["passes"], counts["drafts"]
    seen = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return ", ".join([f"{each.happened.passes} passes", *seen])


def _compared(each: CheckedPass) -> str:
    return f"{each.comparison.num_tokens} tokens, {each.comparison.num_logprobs} logprobs"


def _verdict(each: CheckedPass) -> str:
    if each.comparison.difference is not None:
        return "[bold red]DIFFERENT"
    if each.missing:
        return f"[bold yellow]not shown: no {', no '.join(each.missing).replace('_', ' ')}"
    return "[green]equal"
