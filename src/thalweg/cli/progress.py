"""Progress bars on standard error, for people only."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def loading_progress(path: str) -> Iterator[Callable[[int, int], None]]:
    """A callback for bytes read and bytes in all."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(f"loading {Path(path).name}", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield show


@contextmanager
def answering_progress(num_prompts: int) -> Iterator[Callable[[int, float], None]]:
    """A callback for each prompt that is answered: tokens made so far, and per second."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens, {task.fields[rate]:.1f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("answering", total=num_prompts, tokens=0, rate=0.0)

        def show(tokens: int, rate: float) -> None:
            bar.update(task, advance=1, tokens=tokens, rate=rate)

        yield show
