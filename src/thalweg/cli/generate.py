"""`thalweg generate`: one prompt, or with --input many at once."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.generate_options import OutputOptions, PromptOptions
from thalweg.cli.interrupts import Interrupts
from thalweg.cli.model_options import ModelOptions, open_model
from thalweg.cli.option_groups import option_groups
from thalweg.cli.prompts import read_prompt, text_prompt
from thalweg.cli.sampling_options import SamplingOptions
from thalweg.config import SamplingParams

if TYPE_CHECKING:
    from thalweg import LLM
    from thalweg.text import ChatPrompt


@option_groups
def generate(
    asked: PromptOptions,
    wanted: OutputOptions,
    sampling: SamplingOptions,
    model: ModelOptions,
) -> ExitCode:
    """Answer a prompt, piece by piece, or every line of a file.

    A text prompt is one user message when the model has a chat template; --raw continues the
    text itself.

    Lines of --input: {"prompt": TEXT or [IDS]} or {"messages": [...], "tools": [...]}, with an
    "id" and sampling fields as they like.

    Exit codes: 0 all answered, 1 some lines failed, 2 wrong usage or nothing could be answered,
    130 interrupted.
    """
    asked.check()
    wanted.check(batch=asked.input is not None)
    params = sampling.given() | wanted.given()
    SamplingParams(**params)  # refused before minutes of loading
    if asked.input is not None:
        from thalweg.cli.batch import run_batch

        return run_batch(asked, wanted, params=params, model=model)
    assert asked.prompt is not None
    text = read_prompt(asked.prompt)
    llm = open_model(model)
    prompt = text_prompt(llm, text, system=asked.system, raw=asked.raw)
    answer = _stream
    if wanted.json:
        answer = _print_json
    elif wanted.n is not None and wanted.n > 1:
        answer = _print_answers
    code = answer(llm, prompt, SamplingParams(**params))
    if model.verbose:
        from thalweg.cli.about_drafts import print_about_drafts

        print_about_drafts(llm)
    return code


def _stream(llm: LLM, prompt: ChatPrompt | str, params: SamplingParams) -> ExitCode:
    with Interrupts() as interrupts:
        pieces = llm.stream(prompt, params)
        for delta in pieces:
            print(delta.text, end="", flush=True)
            if interrupts.requested:
                print()
                return ExitCode.INTERRUPTED
    print()
    return ExitCode.OK


def _print_json(llm: LLM, prompt: ChatPrompt | str, params: SamplingParams) -> ExitCode:
    from thalweg.cli.result_json import result_as_json

    output = llm.generate(prompt, params)[0]
    json.dump(result_as_json(output, llm.tokenizer), sys.stdout, ensure_ascii=False)
    print()
    return ExitCode.OK


def _print_answers(llm: LLM, prompt: ChatPrompt | str, params: SamplingParams) -> ExitCode:
    for answer in llm.generate(prompt, params)[0].outputs:
        print(f"--- answer {answer.index + 1} of {params.n}", answer.text, sep="\n")
    return ExitCode.OK
