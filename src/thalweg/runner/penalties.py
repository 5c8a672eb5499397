"""What a request changes in its logits before a token is drawn."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from thalweg.scheduler.plan import SamplingRow


def edit_logits(logits: Tensor, row: SamplingRow) -> Tensor:
    """Bias, penalties and bans of one row; the logits themselves if there are none.

    logits: [vocab_size], never changed. The repetition penalty is that of CTRL (Keskar et al. 2019)
    over prompt and answer; presence and frequency penalties count the answer only.
    """
    request, params = row.request, row.request.params
    answer = row.history[len(request.prompt) :]
    out = logits
    if params.logit_bias:
        out = _added(out, dict(params.logit_bias))
    if params.repetition_penalty != 1:
        ids = torch.tensor(sorted(set(row.history)), device=logits.device)
        seen, penalty = out[ids], params.repetition_penalty
        out = out.index_copy(0, ids, torch.where(seen > 0, seen / penalty, seen * penalty))
    if answer and (params.presence_penalty or params.frequency_penalty):
        out = _added(
            out,
            {
                token: -params.presence_penalty - count * params.frequency_penalty
                for token, count in Counter(answer).items()
            },
        )
    if len(answer) < params.min_tokens and request.stop_ids:
        ids = torch.tensor(sorted(request.stop_ids), device=logits.device)
        out = out.index_fill(0, ids, float("-inf"))
    if row.constraint is not None and (mask := row.constraint.mask(answer)) is not None:
        out = _only(out, mask)
    return out


def _only(logits: Tensor, mask: bytearray) -> Tensor:
    allowed = torch.zeros(len(logits), dtype=torch.bool)
    count = min(len(mask), len(logits))
    allowed[:count] = torch.frombuffer(mask, dtype=torch.uint8)[:count] != 0
    return logits.masked_fill(~allowed.to(logits.device), float("-inf"))


def _added(logits: Tensor, amounts: dict[int, float]) -> Tensor:
    ids = torch.tensor(list(amounts), device=logits.device)
    added = torch.tensor(list(amounts.values()), dtype=logits.dtype, device=logits.device)
    return logits.index_add(0, ids, added)
