"""`thalweg chat`: a conversation, by hand or through a pipe."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  typer reads it
from typing import Annotated

import typer

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.model_options import ModelOptions, open_model
from thalweg.cli.option_groups import option_groups
from thalweg.cli.sampling_options import SamplingOptions
from thalweg.cli.usage_error import UsageError
from thalweg.config import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="System message.", show_default=False),
    ] = None
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Tools that the model may call: a JSON list in OpenAI's form. Its calls are "
            "shown, and the next line is the result.",
            show_default=False,
        ),
    ] = None


@option_groups
def chat(options: ChatOptions, sampling: SamplingOptions, model: ModelOptions) -> ExitCode:
    """Talk with a model. Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.

    When standard input is not a terminal, every line of it is one message and only the answers
    are printed.

    Exit codes: 0 fine, 1 a message of a script was refused, 2 wrong usage, 130
    interrupted.
    """
    params = SamplingParams(**sampling.given())
    llm = open_model(model)
    if llm.loaded.template is None:
        raise UsageError(f"{model.path()} has no chat template: use thalweg generate")

    from thalweg.cli.chat_session import ChatSession
    from thalweg.cli.chat_tools import read_tools
    from thalweg.cli.conversation import Conversation

    by_hand = sys.stdin.isatty() and sys.stdout.isatty()
    if by_hand:
        with suppress(ImportError):
            import readline  # noqa: F401  input() can edit its line with it
        print(f"{model.path()}, {llm.loaded.limits.max_model_len} tokens. /help lists commands.")
    tools = None if options.tools is None else read_tools(options.tools, llm.loaded)
    conversation = Conversation(llm, options.system, params, tools=tools)
    return ChatSession(conversation, by_hand=by_hand).run()
