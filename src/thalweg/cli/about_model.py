"""What `--verbose` tells: what was loaded, how memory is divided, which kernel computes what."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from thalweg.memory.sizes import format_nbytes

if TYPE_CHECKING:
    from thalweg import LLM


def print_about(llm: LLM) -> None:
    """On standard error, so that answers can be piped."""
    loaded, memory, caches = llm.loaded, llm.loaded.memory, llm.loaded.caches
    block_size = llm.config.block_size
    lines = [
        loaded.report.text(),
        *([loaded.rounding.text()] if loaded.rounding else []),
        f"memory: {format_nbytes(memory.nbytes)}, of which {format_nbytes(memory.weights)} for "
        f"weights, {format_nbytes(memory.scratch)} for passes and {format_nbytes(caches.nbytes)} "
        f"for caches",
        f"caches: {caches.num_blocks - 1} KV blocks of "
        f"{block_size} tokens and {caches.num_slots - 1} state slots; at most "
        f"{caches.max_num_seqs} sequences at once and {caches.max_model_len} tokens in one",
        *caches.notes,
        loaded.execution.text(),
    ]
    print("\n\n".join(lines), end="\n\n", file=sys.stderr)
