"""What one forward pass is about: S sequences, T new tokens, packed along the token axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from thalweg.ids import NULL, SKIP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray


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
    """Logged tokens to fold into the state before the first new one."""
    num_logged: int = 0
    """New tokens at the end whose inputs go to the log of the slot that is stored to before."""
    fold_slot: int = SKIP
    """Where the state after the pending tokens is kept, or SKIP."""

    @property
    def seq_len(self) -> int:
        return self.start + len(self.token_ids) if self.blocks else 0

    @staticmethod
    def padding(num_tokens: int) -> SequenceInput:
        """Rows that are computed and mean nothing: they load no state and store nothing."""
        return SequenceInput([0] * num_tokens, 0, (), NULL, [SKIP] * num_tokens)

    @staticmethod
    def fold(slot: int, num_pending: int) -> SequenceInput:
        """No new tokens: the state in a slot is brought past those that are logged there."""
        return SequenceInput((), 0, (), slot, (), num_pending=num_pending, fold_slot=slot)


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
    num_pending: Tensor  # [S] int32, logged tokens to fold before the first new one
    replay: ReplayIndex


@dataclass(frozen=True, slots=True, eq=False)
class ReplayIndex:
    """How this pass reads and writes the log [num_slots * log_size, ...] of what states are behind.

    Recurrent layers run N = P + T rows: each sequence's P pending ones, then its new ones.
    """

    pending: Tensor  # [P] int64, rows of the log
    pending_at: Tensor  # [P] int64, where they are among the N
    new_at: Tensor  # [T] int64, where the new tokens are among the N
    logged: Tensor  # [D] int64, new tokens whose inputs are kept
    logged_at: Tensor  # [D] int64, rows of the log
    cu_seqlens: Tensor  # [S + 1] int32, of the N rows
    store_slots: Tensor  # [N] int32
    max_query_len: int

    @classmethod
    def of(
        cls, seqs: Sequence[SequenceInput], *, log_size: int, device: str | torch.device
    ) -> ReplayIndex:
        pending: list[int] = []
        pending_at: list[int] = []
        new_at: list[int] = []
        logged: list[int] = []
        logged_at: list[int] = []
        store_slots: list[int] = []
        for s in seqs:
            num_new, row, token = len(s.token_ids), len(store_slots), len(new_at)
            pending += range(s.load_slot * log_size, s.load_slot * log_size + s.num_pending)
            pending_at += range(row, row + s.num_pending)
            new_at += range(row + s.num_pending, row + s.num_pending + num_new)
            if s.num_logged:
                first = s.store_slots[-s.num_logged - 1] * log_size
                logged += range(token + num_new - s.num_logged, token + num_new)
                logged_at += range(first, first + s.num_logged)
            if s.num_pending:
                store_slots += [*[SKIP] * (s.num_pending - 1), s.fold_slot]
            store_slots += s.store_slots
        lens = [s.num_pending + len(s.token_ids) for s in seqs]

        return cls(
            _tensor(pending, np.int64, device),
            _tensor(pending_at, np.int64, device),
            _tensor(new_at, np.int64, device),
            _tensor(logged, np.int64, device),
            _tensor(logged_at, np.int64, device),
            cu_seqlens=_tensor(list(accumulate(lens, initial=0)), np.int32, device),
            store_slots=_tensor(store_slots, np.int32, device),
            max_query_len=max(lens, default=0),
        )


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
    num_pending: int = 0
    num_logged: int = 0


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

    @property
    def recurrent(self) -> ForwardBatch:
        """The rows that recurrent layers run: those that a state is behind are among them."""
        if not self.shape.num_pending:
            return self
        rows = self.state.replay
        return replace(
            self,
            cu_seqlens=rows.cu_seqlens,
            state=replace(self.state, store_slots=rows.store_slots),
            shape=replace(
                self.shape,
                num_tokens=len(rows.store_slots),
                max_query_len=rows.max_query_len,
            ),
        )

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
        log_size: int = 0,
        device: str | torch.device = "cpu",
    ) -> ForwardBatch:
        """Any mixture of the above. `logits_rows` index the T packed rows, ascending."""
        positions = list(
            chain.from_iterable(range(s.start, s.start + len(s.token_ids)) for s in seqs)
        )
        store_slots = list(chain.from_iterable(s.store_slots for s in seqs))
        assert len(store_slots) == len(positions)
        lens = [len(s.token_ids) for s in seqs]
        table = np.full((len(seqs), max((len(s.blocks) for s in seqs), default=0)), NULL, np.int32)
        for row, seq in zip(table, seqs, strict=True):
            row[: len(seq.blocks)] = seq.blocks

        def int32(values: Sequence[int] | NDArray[np.int32]) -> Tensor:
            return _tensor(values, np.int32, device)

        rope_positions = int32(positions)
        return cls(
            token_ids=int32(list(chain.from_iterable(s.token_ids for s in seqs))),
            positions=rope_positions,
            rope_positions=rope_positions[None],
            cu_seqlens=int32(list(accumulate(lens, initial=0))),
            seq_lens=int32([s.seq_len for s in seqs]),
            logits_rows=int32(logits_rows),
            paged=PagedIndex(
                int32(table),
                _tensor([r for s in seqs for r in _cache_rows(s, block_size)], np.int64, device),
            ),
            state=StateIndex(
                int32([s.load_slot for s in seqs]),
                int32(store_slots),
                int32([s.num_pending for s in seqs]),
                ReplayIndex.of(seqs, log_size=log_size, device=device),
            ),
            rows=RowIndex(),
            shape=BatchShape(
                num_seqs=len(seqs),
                num_tokens=len(positions),
                num_logits=len(logits_rows),
                max_query_len=max(lens, default=0),
                max_seq_len=max((s.seq_len for s in seqs), default=0),
                num_stores=sum(slot != SKIP for slot in store_slots),
                num_pending=sum(s.num_pending for s in seqs),
                num_logged=sum(s.num_logged for s in seqs),
            ),
        )


def _tensor(
    values: Sequence[int] | NDArray[np.int32], dtype: DTypeLike, device: str | torch.device
) -> Tensor:
    """By numpy: torch takes ten times as long to look at a list."""
    return torch.from_numpy(np.asarray(values, dtype)).to(device)


def _cache_rows(seq: SequenceInput, block_size: int) -> list[int]:
    """The KV row of each new token; SKIP where it is written already, and for padding."""
    if not seq.blocks:
        return [SKIP] * len(seq.token_ids)
    return [
        SKIP if p < seq.num_written else seq.blocks[p // block_size] * block_size + p % block_size
        for p in range(seq.start, seq.start + len(seq.token_ids))
    ]
