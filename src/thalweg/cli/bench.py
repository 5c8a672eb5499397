"""`thalweg bench`: how fast a model is here, measured as llama-bench does it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.model_options import ModelOptions, open_model
from thalweg.cli.option_groups import option_groups
from thalweg.cli.usage_error import UsageError
from thalweg.config import engine_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thalweg import LLM
    from thalweg.cli.bench_report import Measured

_bench = partial(typer.Option, rich_help_panel="Measurement")
MOST = 1 << 24


class Output(StrEnum):
    MD = "md"
    JSON = "json"


def parse_counts(text: str, *, least: int) -> tuple[int, ...]:
    """`128,512` -> (128, 512)"""
    text = str(text)  # typer parses defaults too
    if re.fullmatch(r"\d{1,8}(,\d{1,8})*", text):
        counts = tuple(map(int, text.split(",")))
        if least <= min(counts) and max(counts) <= MOST:
            return counts
    allowed = f"numbers from {least} to {MOST} with commas between them, such as 128,512"
    raise typer.BadParameter(f"{text!r:.80} is not allowed: {allowed}")


_from_0 = partial(parse_counts, least=0)
_from_1 = partial(parse_counts, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Every combination is measured. Defaults are those of llama-bench."""

    prompt: Annotated[
        str,
        _bench("--prompt", "-p", metavar="N,...", help="Tokens of a prompt; 0: none."),
    ] = "512"
    generate: Annotated[
        str,
        _bench("--generate", "-g", metavar="N,...", help="Tokens of an answer; 0: none."),
    ] = "128"
    depth: Annotated[
        str,
        _bench("--depth", "-d", metavar="N,...", help="Tokens before them; multiples of a block."),
    ] = "0"
    sequences: Annotated[
        str, _bench("--sequences", "-s", metavar="N,...", help="Sequences at once.")
    ] = "1"
    repetitions: Annotated[
        int, _bench("--repetitions", "-r", min=1, max=10_000, help="Of each measurement.")
    ] = 5
    output: Annotated[Output, _bench("--output", "-o", help="A table or JSON.")] = Output.MD

    def cases(self) -> list[Case]:
        """In llama-bench's order: prompts before answers, depth by depth."""
        places = list(product(_from_0(self.depth), _from_1(self.sequences)))
        cases = []
        for depth, num_seqs in places:
            cases += [Case("pp", n, depth, num_seqs) for n in _from_0(self.prompt) if n]
            cases += [Case("tg", n, depth, num_seqs) for n in _from_0(self.generate) if n]
        return cases


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    """`pp`: prompt processing; `tg`: text generation."""
    num_tokens: int
    """Of each sequence."""
    depth: int
    num_seqs: int

    @property
    def name(self) -> str:
        depth = f" @ d{self.depth}" if self.depth else ""
        return f"{self.kind}{self.num_tokens}{depth}"


@option_groups
def bench(wanted: BenchOptions, model: ModelOptions) -> ExitCode:
    """Measure prompt processing (ppN) and text generation (tgN) in tokens per second.

    Random tokens go through the whole engine, scheduling and greedy sampling included. Each test
    runs once to warm up and then --repetitions times; the table has mean and standard deviation.
    """
    cases = wanted.cases()
    size = engine_config(**model.given()).block_size
    for case in cases:
        if case.kind == "pp" and case.depth % size:
            raise UsageError(f"--depth {case.depth} is not a multiple of the block size, {size}")
    llm = open_model(model)

    from thalweg.cli.bench_report import Report

    report = Report.about(llm, model.path())
    if wanted.output is Output.MD:
        print(report.heading())
    measured = []
    for each in _measure(llm, cases, wanted.repetitions):
        if wanted.output is Output.MD:
            print(report.row(each), flush=True)
        measured.append(each)
    if wanted.output is Output.JSON:
        print(report.as_json(measured))
    return ExitCode.OK


def _measure(llm: LLM, cases: list[Case], repetitions: int) -> Iterator[Measured]:
    from thalweg.cli.bench_report import Measured
    from thalweg.engine.workbench import Workbench

    workbench = Workbench(llm.loaded)
    for number, case in enumerate(cases, start=1):
        if sys.stderr.isatty():
            print(f"{number} of {len(cases)}: {case.name}", end="\r", file=sys.stderr)
        contexts = workbench.contexts(case.num_seqs, case.depth)
        time = workbench.time_prompts if case.kind == "pp" else workbench.time_generation
        time(contexts, case.num_tokens)
        seconds = [time(contexts, case.num_tokens) for _ in range(repetitions)]
        yield Measured(case, tuple(seconds))
