"""`thalweg generate --input`: many prompts at once, each result written when it is there."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from thalweg.cli.batch_files import check_output, open_output, read_lines, write_line
from thalweg.cli.batch_job import Job, JobMaker
from thalweg.cli.batch_line import parse_object
from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.interrupts import Interrupts
from thalweg.cli.model_options import open_model
from thalweg.cli.progress import answering_progress
from thalweg.cli.result_json import result_as_json
from thalweg.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thalweg import LLM
    from thalweg.cli.generate_options import OutputOptions, PromptOptions
    from thalweg.cli.model_options import ModelOptions


def run_batch(
    asked: PromptOptions, wanted: OutputOptions, *, params: Mapping[str, Any], model: ModelOptions
) -> ExitCode:
    """Lines that are wrong are reported first; then the others are answered together."""
    assert asked.input is not None
    lines = read_lines(asked.input)
    check_output(asked.input, wanted.output)
    llm = open_model(model)
    make_job = JobMaker(llm, asked, params)
    with open_output(wanted.output) as file:
        jobs = []
        for number, text in lines:
            label: dict[str, Any] = {"line": number}
            try:
                fields = parse_object(text)
                if "id" in fields:
                    label["id"] = fields["id"]
                jobs.append(make_job(fields, label))
            except RequestError as error:
                _report(file, label, str(error))
        if jobs:
            _answer(llm, jobs, file)
    failed = len(lines) - len(jobs)
    if not jobs:
        return ExitCode.ERROR
    return ExitCode.SOME_FAILED if failed else ExitCode.OK


def _report(file: TextIO, label: Mapping[str, Any], error: str) -> None:
    error = " ".join(error.split())
    print(f"thalweg: error: line {label['line']}: {error}", file=sys.stderr)
    write_line(file, {**label, "error": error})


def _answer(llm: LLM, jobs: Sequence[Job], file: TextIO) -> None:
    """Ctrl-C leaves at once, but never with half a line written."""
    started, tokens = time.perf_counter(), 0
    done = 0
    results = llm.as_completed([job.prompt for job in jobs], [job.params for job in jobs])
    try:
        with answering_progress(len(jobs)) as show, Interrupts() as interrupts:
            while done < len(jobs):
                with interrupts.at_once():
                    place, output = next(results)
                job = jobs[place]
                result = result_as_json(replace(output, prompt=job.text), llm.tokenizer)
                write_line(file, {**job.label, **result})
                done += 1
                tokens += output.num_generated
                show(tokens, tokens / (time.perf_counter() - started))
    finally:
        seconds = time.perf_counter() - started
        print(
            f"answered {done} of {len(jobs)} prompts: {tokens} tokens in {seconds:.1f} s, "
            f"{tokens / seconds:.1f} tokens/s",
            file=sys.stderr,
        )
