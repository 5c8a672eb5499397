"""What `--verbose` tells: what was loaded, how memory is divided, which kernel computes what."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from thalweg.cli.byte_size import format_byte_size

if TYPE_CHECKING:
    from thalweg import LLM


def print_about(llm: LLM) -> None:
    """On standard error, so that answers can be piped."""
    loaded, caches = llm.loaded, llm.loaded.caches
    block_size = llm.config.block_size
    lines = [
        loaded.report.text(),
        f"caches: {format_byte_size(caches.nbytes)} for {caches.num_blocks - 1} KV blocks of "
        f"{block_size} tokens and {caches.num_slots - 1} state slots; at most "
        f"{caches.max_num_seqs} sequences at once and {caches.max_model_len} tokens in one",
        loaded.execution.text(),
    ]
    print("\n\n".join(lines), end="\n\n", file=sys.stderr)
