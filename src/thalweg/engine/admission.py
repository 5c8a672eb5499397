"""What is checked of a prompt before it may cost anything."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.config.request import RequestOptions
from thalweg.errors import RequestError
from thalweg.scheduler.request import Request
from thalweg.text import ChatPrompt

if TYPE_CHECKING:
    from thalweg.config import SamplingParams
    from thalweg.scheduler.constraint import TokenConstraint
    from thalweg.text import Tokenizer

Prompt = str | Sequence[int] | ChatPrompt
"""Text, token ids, or a conversation that was rendered."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    vocab_size: int
    max_model_len: int
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Admitted:
    request: Request
    text: str | None
    """The prompt as text, if it was given as text."""


def admit_prompt(
    request_id: str,
    prompt: Prompt,
    params: SamplingParams,
    *,
    limits: AdmissionLimits,
    tokenizer: Tokenizer,
    options: RequestOptions | None = None,
    kept_special: frozenset[int] = frozenset(),
    constraints: tuple[TokenConstraint, ...] = (),
) -> Admitted:
    """`admit` for a prompt in any form. Raises `RequestError` if it is not allowed."""
    text: str | None = None
    ids: Sequence[int]
    hints: tuple[int, ...] = ()
    match prompt:
        case ChatPrompt():
            text, ids, hints = prompt.text, prompt.token_ids, (prompt.snapshot_hint,)
        case str():
            text, ids = prompt, tokenizer.encode(prompt)
        case _:
            ids = prompt
    request = admit(
        request_id,
        ids,
        params,
        limits=limits,
        options=options,
        snapshot_hints=hints,
        kept_special=kept_special,
        constraints=constraints,
    )
    return Admitted(request, text)


def admit(
    request_id: str,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    limits: AdmissionLimits,
    options: RequestOptions | None = None,
    snapshot_hints: tuple[int, ...] = (),
    kept_special: frozenset[int] = frozenset(),
    constraints: tuple[TokenConstraint, ...] = (),
) -> Request:
    """A request that is sure to fit. `max_tokens` is cut to what the context holds; an answer that
    reaches it ends with finish reason `length`."""
    if not prompt:
        raise RequestError("the prompt is empty: at least one token")
    last = limits.vocab_size - 1
    for token in prompt:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token <= last:
            raise RequestError(f"token id {token!r} in the prompt is not allowed: 0 to {last}")
    for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        if bad := [token for token in ids if token > last]:
            raise RequestError(f"token id {bad[0]} in {name} is not allowed: 0 to {last}")
    room = limits.max_model_len - len(prompt)
    if room < 1:
        raise RequestError(
            f"the prompt has {len(prompt)} tokens, and prompt and answer together may have "
            f"{limits.max_model_len}"
        )
    stop_ids = frozenset(params.stop_token_ids)
    if not params.ignore_eos:
        stop_ids |= limits.eos_ids
    if params.min_tokens and len(stop_ids) >= limits.vocab_size:
        raise RequestError(f"min_tokens = {params.min_tokens} bans every token: all are stop ids")
    return Request(
        id=request_id,
        prompt=tuple(prompt),
        params=params,
        seed=secrets.randbits(63) if params.seed is None else params.seed,
        max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
        stop_ids=stop_ids,
        snapshot_hints=snapshot_hints,
        options=options or RequestOptions(),
        kept_special=kept_special,
        constraints=constraints,
    )
