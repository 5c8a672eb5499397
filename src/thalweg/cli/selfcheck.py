"""`thalweg selfcheck`: does this model, on this machine, give the same bits whatever happens?"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.model_options import ModelOptions, open_model
from thalweg.cli.option_groups import option_groups

_check = partial(typer.Option, rich_help_panel="Check")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    path: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="The same as --model.", show_default=False),
    ] = None
    tokens: Annotated[int, _check(min=8, max=1000, help="Of each answer.")] = 12
    seed: Annotated[int, _check(min=0, max=1 << 62, help="Another one asks other questions.")] = 0
    json: Annotated[bool, _check("--json", help="Print one JSON object.")] = False


@option_groups
def selfcheck(wanted: CheckOptions, model: ModelOptions) -> ExitCode:
    """Answer the same random prompts alone and cold, then cached, in chunks, in company, preempted
    and with drafts, and compare every token and logprob bit by bit.

    Exit codes: 0 all bits are equal, 1 some are not, 2 wrong usage or no model.
    """
    if wanted.path is not None:
        model = replace(model, model=wanted.path)
    if model.speculate is None:  # a head of the model's own is checked, too
        model = replace(model, speculate="auto")
    llm = open_model(model)

    from thalweg.cli.selfcheck_report import CheckReport, checking_progress
    from thalweg.engine.selfcheck.check import SelfCheck

    check = SelfCheck(llm.loaded, llm.config, num_tokens=wanted.tokens, seed=wanted.seed)
    with checking_progress(len(check.passes)) as progress:
        passes = tuple(progress(each) for each in check.run())
    report = CheckReport.about(llm, model.path(), check, passes)
    if wanted.json:
        print(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        report.show()
    return ExitCode.OK if report.equal else ExitCode.SOME_FAILED
