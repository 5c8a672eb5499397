"""The bodies of `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from thalweg.server.schemas.chat_request import Message, Tool
from thalweg.server.schemas.fields import Strict, TokenIds


class TokenizeRequest(Strict):
    """Either a prompt, or a conversation as `/v1/chat/completions` takes it."""

    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parse_special: bool = False
    """Special tokens in the prompt's text are tokens."""


class DetokenizeRequest(Strict):
    tokens: TokenIds
    skip_special: bool = False
