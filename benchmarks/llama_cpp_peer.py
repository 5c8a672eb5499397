"""llama.cpp through the low-level API of llama-cpp-python, with its own defaults: float16 KV cache,
batches of 2048 in parts of 512.

`LlamaSession` is its memory and its batches; `LlamaWorkbench` measures the same things in the same
way as `thalweg.engine.workbench.Workbench`. Tokens are chosen greedily, by numpy.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Self

import llama_cpp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

lib: Any = llama_cpp
BATCH_SIZE = 2048

_ignore = lib.llama_log_callback(lambda level, text, data: None)
lib.llama_log_set(_ignore, None)


class LlamaModel:
    """The weights, mapped and repacked by llama.cpp as it likes."""

    def __init__(self, path: str | Path, *, threads: int) -> None:
        self.handle = lib.llama_model_load_from_file(
            str(path).encode(), lib.llama_model_default_params()
        )
        if not self.handle:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.threads = threads
        self.vocab_size: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.handle))

    def close(self) -> None:
        lib.llama_model_free(self.handle)


@dataclass(frozen=True, slots=True)
class Row:
    """A token of a batch."""

    seq: int
    position: int
    token: int
    wanted: bool = False
    """Whether the next token is."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A sequence's memory, saved."""

    num_tokens: int
    data: Any  # [n] uint8


class LlamaSession:
    """A context of `num_seqs` sequences of `max_len` tokens.

    `unified`: one KV cache for all, which `copy` shares; else each has its own, as is faster.
    """

    def __init__(
        self, model: LlamaModel, *, num_seqs: int, max_len: int, unified: bool = False
    ) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx = num_seqs * (-(-max_len // 256) * 256)
        params.n_batch = BATCH_SIZE
        params.n_seq_max = num_seqs
        params.n_threads = params.n_threads_batch = model.threads
        params.kv_unified = unified
        self.num_seqs = num_seqs
        self.vocab_size = model.vocab_size
        self._context = lib.llama_init_from_model(model.handle, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp has no room for {num_seqs} sequences of {max_len}")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(BATCH_SIZE, 0, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        lib.llama_batch_free(self._batch)
        lib.llama_free(self._context)

    def decode(self, rows: Sequence[Row]) -> list[int]:
        """One pass, or several if there are many. -> the most likely token after each wanted row"""
        tokens: list[int] = []
        for start in range(0, len(rows), BATCH_SIZE):
            part = rows[start : start + BATCH_SIZE]
            self._decode(part)
            tokens += [self._most_likely(i) for i, row in enumerate(part) if row.wanted]
        return tokens

    def remove(self, seq: int) -> None:
        lib.llama_memory_seq_rm(self._memory, seq, -1, -1)

    def clear(self) -> None:
        lib.llama_memory_clear(self._memory, False)

    def copy(self, source: int, target: int) -> None:
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def save(self, seq: int, num_tokens: int) -> State:
        size = lib.llama_state_seq_get_size(self._context, seq)
        data = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data(self._context, data, size, seq) != size:
            raise RuntimeError("llama.cpp could not save a sequence")
        return State(num_tokens, data)

    def load(self, seq: int, state: State) -> None:
        if not lib.llama_state_seq_set_data(self._context, state.data, len(state.data), seq):
            raise RuntimeError("llama.cpp could not restore a sequence")

    def _decode(self, rows: Sequence[Row]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, row in enumerate(rows):
            batch.token[i] = row.token
            batch.pos[i] = row.position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = row.seq
            batch.logits[i] = row.wanted
        if failed := lib.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode failed with {failed}")

    def _most_likely(self, i: int) -> int:
        logits = lib.llama_get_logits_ith(self._context, i)
        return int(np.argmax(np.ctypeslib.as_array(logits, (self.vocab_size,))))


def prompt_rows(seq: int, tokens: Sequence[int], *, start: int = 0) -> list[Row]:
    """The next token is wanted after the last one."""
    last = len(tokens) - 1
    return [Row(seq, start + i, token, wanted=i == last) for i, token in enumerate(tokens)]


class LlamaWorkbench:
    """Each measurement begins after saved states, one a sequence."""

    def __init__(self, session: LlamaSession, *, seed: int = 0) -> None:
        self._session = session
        self._random = Random(seed)

    def contexts(self, num_seqs: int, depth: int) -> list[State | None]:
        """`num_seqs` beginnings of `depth` tokens each; None is an empty one."""
        return self.extended([None] * num_seqs, depth)

    def extended(self, contexts: Sequence[State | None], num_tokens: int) -> list[State | None]:
        if not num_tokens:
            return list(contexts)
        starts = self._restore(contexts)
        longer: list[State | None] = []
        for seq, start in enumerate(starts):
            self._session.decode(prompt_rows(seq, self._tokens(num_tokens), start=start))
            longer.append(self._session.save(seq, start + num_tokens))
        return longer

    def time_prompts(self, contexts: Sequence[State | None], num_tokens: int) -> float:
        """Seconds until each context, continued by a prompt of `num_tokens`, has a next token."""
        starts = self._restore(contexts)
        rows: list[Row] = []
        for seq, start in enumerate(starts):
            rows += prompt_rows(seq, self._tokens(num_tokens), start=start)
        begin = time.perf_counter()
        self._session.decode(rows)
        return time.perf_counter() - begin

    def time_generation(self, contexts: Sequence[State | None], num_tokens: int) -> float:
        """Seconds for `num_tokens` steps in which each of the contexts gets a token."""
        starts = self._restore(contexts)
        rows = [
            Row(seq, start, token, wanted=True)
            for (seq, start), token in zip(
                enumerate(starts), self._tokens(len(starts)), strict=True
            )
        ]
        tokens = self._session.decode(rows)
        begin = time.perf_counter()
        for step in range(1, num_tokens + 1):
            rows = [
                Row(seq, start + step, token, wanted=True)
                for (seq, start), token in zip(enumerate(starts), tokens, strict=True)
            ]
            tokens = self._session.decode(rows)
        return time.perf_counter() - begin

    def _restore(self, contexts: Sequence[State | None]) -> list[int]:
        """Nothing but these in memory. -> how long each is"""
        self._session.clear()
        for seq, state in enumerate(contexts):
            if state is not None:
                self._session.load(seq, state)
        return [0 if state is None else state.num_tokens for state in contexts]

    def _tokens(self, num_tokens: int) -> list[int]:
        return [self._random.randrange(self._session.vocab_size) for _ in range(num_tokens)]


@contextlib.contextmanager
def llama_workbench(model: LlamaModel, *, num_seqs: int, max_len: int) -> Iterator[LlamaWorkbench]:
    with LlamaSession(model, num_seqs=num_seqs, max_len=max_len) as session:
        yield LlamaWorkbench(session)
