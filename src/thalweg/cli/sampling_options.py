"""The flags that say how tokens are chosen and when an answer ends."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any

import typer

from thalweg.cli.usage_error import UsageError

DEFAULT_TEMPERATURE = 0.7
"""Of the commands. The library's own default, 1, is the model's distribution as it is."""

_choice = partial(typer.Option, rich_help_panel="Choice of tokens", show_default=False)
_end = partial(typer.Option, rich_help_panel="End of an answer", show_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """None, or False for a switch: not given. Names and meanings are those of `SamplingParams`."""

    temperature: Annotated[
        float | None, _choice(help=f"0: always the most likely. Default {DEFAULT_TEMPERATURE}.")
    ] = None
    top_k: Annotated[int | None, _choice(help="Of the k most likely only; 0: of all.")] = None
    top_p: Annotated[
        float | None, _choice(help="Of the most likely that reach this probability together.")
    ] = None
    min_p: Annotated[
        float | None, _choice(help="Of those at least this fraction as likely as the best.")
    ] = None
    repetition_penalty: Annotated[
        float | None, _choice(help="Divide the logits of tokens seen; 1: off.")
    ] = None
    presence_penalty: Annotated[
        float | None, _choice(help="Subtract once for tokens of the answer; -2 to 2.")
    ] = None
    frequency_penalty: Annotated[
        float | None, _choice(help="Subtract for each occurrence in the answer; -2 to 2.")
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        _choice(metavar="ID=VALUE", help="Add to a token's logit. Repeatable."),
    ] = None
    seed: Annotated[
        int | None, _choice(help="The same seed gives the same answer. Default: drawn.")
    ] = None

    max_tokens: Annotated[
        int | None, _end(help="At most this many tokens. Default: what the context holds.")
    ] = None
    min_tokens: Annotated[int | None, _end(help="No end before this many tokens.")] = None
    stop: Annotated[
        list[str] | None, _end(metavar="TEXT", help="End before this text. Repeatable.")
    ] = None
    stop_token_id: Annotated[
        list[int] | None, _end(metavar="ID", help="End at this token. Repeatable.")
    ] = None
    include_stop: Annotated[bool, _end("--include-stop", help="Keep the stop text.")] = False
    ignore_eos: Annotated[
        bool, _end("--ignore-eos", help="Go on after the model's end-of-text tokens.")
    ] = False

    def given(self) -> dict[str, Any]:
        """Fields of `SamplingParams` that were given, and the commands' default temperature."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["stop_token_ids"] = values.pop("stop_token_id")
        values["logit_bias"] = dict(map(_bias, values["logit_bias"] or ()))
        return {"temperature": DEFAULT_TEMPERATURE} | {
            name: value
            for name, value in values.items()
            if value is not None and value is not False and value != {}
        }


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise UsageError(f"--logit-bias {text} is not ID=VALUE, such as 42=-5") from None
