"""The body of `/v1/completions`."""

from __future__ import annotations

from typing import Annotated

from thalweg.server.schemas.fields import GenerationFields, only


class CompletionRequest(GenerationFields):
    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = 16
    echo: bool | None = None
    logprobs: int | None = None
    best_of: Annotated[int | None, only(1, why="answers are not ranked against each other")] = None
    suffix: Annotated[str | None, only(why="there is no text after an answer")] = None
