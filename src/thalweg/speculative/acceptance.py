"""Which drafts are kept: those that plain decoding would have drawn itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def num_accepted(
    drafts: Sequence[int], drawn: Sequence[int], *, stop_ids: Collection[int], budget: int
) -> int:
    """How many of a row's drafts become history; the answer gains `drawn[: result + 1]`.

    `drawn[i]` is what is drawn after the first i drafts, one more than there are drafts. The first
    one that is no draft is right all the same. An answer ends with an id of `stop_ids`, or when it
    has gained `budget` tokens (>= 1), and its last token is never computed.
    """
    assert len(drawn) == len(drafts) + 1 and budget >= 1
    for i, (draft, token) in enumerate(zip(drafts, drawn, strict=False)):
        if draft != token or token in stop_ids or i + 1 == budget:
            return i
    return len(drafts)
