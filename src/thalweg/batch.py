"""What one forward pass is about: S sequences, T new tokens, packed along the token axis."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thalweg.ids import NULL, SKIP

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class SequenceInput:
    """One sequence's part of a pass, still on the host. Without blocks it is padding."""

    token_ids: Sequence[int]
    """The new tokens."""
    start: int
    """Position of the first of them."""
    blocks: Sequence[int]
    """KV blocks of the whole context, new tokens included, in order."""
    load_slot: int
    """The state it starts from; NULL is the zero state."""
    store_slots: Sequence[int]
    """Where the state after each new token is kept, or SKIP; one entry a token."""
    num_written: int = 0
    """Positions below this have their KV rows already: they are read, never written again."""
    num_pending: int = 0
    """Logged rows to fold into the state before the first new token."""

    @property
    def seq_len(self) -> int:
        return self.start + len(self.token_ids) if self.blocks else 0

    @staticmethod
    def padding(num_tokens: int) -> SequenceInput:
        """Rows that are computed and mean nothing: they load no state and store nothing."""
        return SequenceInput([0] * num_tokens, 0, (), NULL, [SKIP] * num_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class PagedIndex:
    """How this pass reads and writes per-token memory (the paged KV cache)."""

    block_table: Tensor  # [S, B] int32, blocks of each sequence, in order
    slot_mapping: Tensor  # [T] int64, row each new token is written to, or SKIP


@dataclass(frozen=True, slots=True, eq=False)
class StateIndex:
    """How this pass reads and writes per-sequence memory (recurrent state)."""

    load_slots: Tensor  # [S] int32, state each sequence starts from; NULL is the zero state
    store_slots: Tensor  # [T] int32, where the state *after* each token is kept, or SKIP
    num_pending: Tensor  # [S] int32, logged rows to fold before the first new token


@dataclass(frozen=True, slots=True, eq=False)
class RowIndex:
    """What differs by row for projections. Nothing yet."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Host ints: what kernels and captured graphs are keyed by."""

    num_seqs: int
    num_tokens: int
    num_logits: int
    max_query_len: int
    max_seq_len: int
    num_stores: int


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ForwardBatch:
    """A ragged batch. Decode, prefill, chunked prefill and verify differ only in `cu_seqlens`."""

    token_ids: Tensor  # [T] int32
    positions: Tensor  # [T] int32, order in the sequence: masks and slots
    rope_positions: Tensor  # [R, T] int32, R = 1 for text
    cu_seqlens: Tensor  # [S + 1] int32, token range of each sequence
    seq_lens: Tensor  # [S] int32, context length with the new tokens; 0 for padding
    logits_rows: Tensor  # [L] int32, rows whose logits are wanted
    paged: PagedIndex
    state: StateIndex
    rows: RowIndex
    shape: BatchShape

    @classmethod
    def decode(cls, seqs: Sequence[SequenceInput], *, block_size: int) -> ForwardBatch:
        """One new token for each of many sequences; logits of every row."""
        assert all(len(s.token_ids) == 1 for s in seqs)
        return cls.ragged(seqs, range(len(seqs)), block_size=block_size)

    @classmethod
    def prefill(cls, seq: SequenceInput, *, block_size: int) -> ForwardBatch:
        """A run of one sequence's tokens; logits of the last."""
        return cls.ragged([seq], [len(seq.token_ids) - 1], block_size=block_size)

    @classmethod
    def verify(cls, seqs: Sequence[SequenceInput], *, block_size: int) -> ForwardBatch:
        """A certain token and its drafts for each sequence; logits of every row."""
        return cls.ragged(seqs, range(sum(len(s.token_ids) for s in seqs)), block_size=block_size)

    @classmethod
    def ragged(
        cls,
        seqs: Sequence[SequenceInput],
        logits_rows: Sequence[int],
        *,
        block_size: int,
        device: str | torch.device = "cpu",
    ) -> ForwardBatch:
        """Any mixture of the above. `logits_rows` index the T packed rows, ascending."""
        positions = list(
            chain.from_iterable(range(s.start, s.start + len(s.token_ids)) for s in seqs)
        )
        store_slots = list(chain.from_iterable(s.store_slots for s in seqs))
        assert len(store_slots) == len(positions)
        lens = [len(s.token_ids) for s in seqs]
        width = max((len(s.blocks) for s in seqs), default=0)

        def int32(values: Sequence[object]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        rope_positions = int32(positions)
        return cls(
            token_ids=int32(list(chain.from_iterable(s.token_ids for s in seqs))),
            positions=rope_positions,
            rope_positions=rope_positions[None],
            cu_seqlens=int32(list(accumulate(lens, initial=0))),
            seq_lens=int32([s.seq_len for s in seqs]),
            logits_rows=int32(logits_rows),
            paged=PagedIndex(
                int32([[*s.blocks, *[NULL] * (width - len(s.blocks))] for s in seqs]),
                torch.tensor(
                    list(chain.from_iterable(_cache_rows(s, block_size) for s in seqs)),
                    dtype=torch.int64,
                    device=device,
                ),
            ),
            state=StateIndex(
                int32([s.load_slot for s in seqs]),
                int32(store_slots),
                int32([s.num_pending for s in seqs]),
            ),
            rows=RowIndex(),
            shape=BatchShape(
                num_seqs=len(seqs),
                num_tokens=len(positions),
                num_logits=len(logits_rows),
                max_query_len=max(lens, default=0),
                max_seq_len=max((s.seq_len for s in seqs), default=0),
                num_stores=sum(slot != SKIP for slot in store_slots),
            ),
        )


def _cache_rows(seq: SequenceInput, block_size: int) -> list[int]:
    """The KV row of each new token; SKIP where it is written already, and for padding."""
    if not seq.blocks:
        return [SKIP] * len(seq.token_ids)
    return [
        SKIP if p < seq.num_written else seq.blocks[p // block_size] * block_size + p % block_size
        for p in range(seq.start, seq.start + len(seq.token_ids))
    ]
