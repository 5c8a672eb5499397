"""What `--verbose` tells of the guesses at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thalweg import LLM


def print_about_drafts(llm: LLM) -> None:
    """On standard error; nothing where none were asked for."""
    stats = llm.loaded.engine.stats()
    drafts, gate = stats.drafts, stats.gate
    if llm.config.speculate == "off":
        return
    places = ", ".join(f"{part:.0%}" for part in drafts.acceptance) or "-"
    lines = (
        f"drafts: {drafts.num_kept} of {drafts.num_drafted} kept, {drafts.mean_length:.2f} tokens "
        f"by a pass that had some; right by place: {places}",
        f"gate: drafts were asked for in {gate.num_drafting} passes and tried in "
        f"{gate.num_probing}, held back in {gate.num_held}, left out to measure in "
        f"{gate.num_measuring}; stopped {gate.num_stopped} times",
    )
    print("", *lines, sep="\n", file=sys.stderr)
