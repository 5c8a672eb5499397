"""What is asked, and what comes out: the options of `thalweg generate` alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from thalweg.cli.usage_error import UsageError

_asked = partial(typer.Option, rich_help_panel="Prompt", show_default=False)
_wanted = partial(typer.Option, rich_help_panel="Output", show_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The text, or - for standard input."),
    ] = None
    input: Annotated[
        str | None,
        _asked("--input", "-i", metavar="FILE", help="Many prompts, a JSON object a line."),
    ] = None
    system: Annotated[
        str | None, _asked(metavar="TEXT", help="System message before a text prompt.")
    ] = None
    raw: Annotated[
        bool,
        _asked("--raw", help="Continue the text itself, without the model's chat template."),
    ] = False

    def check(self) -> None:
        """Raises `UsageError` for options that contradict each other."""
        if (self.prompt is None) == (self.input is None):
            raise UsageError("give either a PROMPT or --input FILE")
        if self.raw and self.system is not None:
            raise UsageError("--system and --raw contradict: a raw prompt has no messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    output: Annotated[
        str | None,
        _wanted("--output", "-o", metavar="FILE", help="Where --input's results go; - is stdout."),
    ] = None
    json: Annotated[bool, _wanted("--json", help="Print the whole result as one object.")] = False
    n: Annotated[int | None, _wanted("--n", "-n", help="Answers to the prompt; 1 to 128.")] = None
    logprobs: Annotated[
        int | None, _wanted(help="With --json: of each token and the k most likely ones.")
    ] = None
    prompt_logprobs: Annotated[
        int | None, _wanted(help="With --json: the same for the prompt.")
    ] = None

    def given(self) -> dict[str, Any]:
        """Fields of `SamplingParams` that were given."""
        names = ("n", "logprobs", "prompt_logprobs")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def check(self, *, batch: bool) -> None:
        """Raises `UsageError` for options that would do nothing."""
        if batch and self.json:
            raise UsageError("--json is for one PROMPT: the results of --input are JSON anyway")
        if not batch and self.output is not None:
            raise UsageError("--output goes with --input: redirect standard output instead")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None and not (batch or self.json):
                raise UsageError(f"--{name.replace('_', '-')} needs --json, which shows them")
