"""From a text on the command line to what the engine is asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from thalweg.errors import RequestError

if TYPE_CHECKING:
    from thalweg import LLM
    from thalweg.text import ChatPrompt


def text_prompt(llm: LLM, text: str, *, system: str | None, raw: bool) -> ChatPrompt | str:
    """A user's message if the model has a chat template, unless `raw`; else text to continue."""
    if not text:
        raise RequestError("the prompt is empty: at least one character")
    if not raw and llm.loaded.template is not None:
        messages = [] if system is None else [{"role": "system", "content": system}]
        return llm.render([*messages, {"role": "user", "content": text}])
    if system is not None:
        raise RequestError("this model has no chat template, so --system has no place")
    return text


def read_prompt(argument: str) -> str:
    """The argument, or for `-` all of standard input without its last line end."""
    return sys.stdin.read().removesuffix("\n") if argument == "-" else argument
