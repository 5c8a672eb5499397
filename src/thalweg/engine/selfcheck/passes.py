"""What is done to the same requests, pass by pass, that must not change a bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from thalweg.config import Rollback


class Arrival(Enum):
    ALONE = "each when the one before has ended"
    TOGETHER = "all at once"
    JOINING = "one more every other step"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPass:
    """One way to answer the same requests."""

    name: str
    about: str
    """What is different from the first time: alone, cold, a prompt in one go, no drafts."""
    shows: tuple[str, ...] = ()
    """Counts of `Happened` that are above zero if it did happen."""
    arrival: Arrival = Arrival.ALONE
    options: dict[str, Any] = field(default_factory=dict)
    """Of `EngineConfig`."""
    num_rounds: int = 1
    """The requests come so often to one engine; each time is compared."""
    preempts: bool = False
    """Every few steps all give up their memory."""
    accuracy: float | None = None
    """Drafts come from a drafter that knows the answers, and are right so often."""
    single_thread: bool = False
    needs_head: bool = False
    """Of multi-token prediction."""


COLD: dict[str, Any] = {
    "rollback": "auto",
    "prefix_cache": False,
    "speculate": "off",
    "max_num_batched_tokens": 512,
}
DRAFTED = {"speculate": "lookup", "num_drafts": 4}
PASSES = (
    CheckPass(name="again", about="the same once more"),
    CheckPass(name="one thread", about="on one thread instead of all", single_thread=True),
    CheckPass(
        name="batched",
        about="all requests in the same passes",
        arrival=Arrival.TOGETHER,
        shows=("shared_passes",),
    ),
    CheckPass(
        name="joining",
        about="requests come while others are answered",
        arrival=Arrival.JOINING,
        shows=("shared_passes",),
    ),
    CheckPass(
        name="chunked",
        about="prompts in chunks of 7 tokens",
        options={"max_num_batched_tokens": 7},
        shows=("passes",),
    ),
    CheckPass(
        name="cached",
        about="twice, the second time from the prefix cache",
        options={"prefix_cache": True},
        num_rounds=2,
        shows=("cached_tokens",),
    ),
    CheckPass(
        name="preempted",
        about="memory taken away every few steps, and all computed again",
        arrival=Arrival.TOGETHER,
        preempts=True,
        shows=("preemptions",),
    ),
    CheckPass(
        name="parked",
        about="the same, but memory is moved away and back",
        arrival=Arrival.TOGETHER,
        options={"offload_memory": -1},
        preempts=True,
        shows=("parkings",),
    ),
    CheckPass(
        name="drafts right",
        about="4 drafts a pass, all of them right",
        options=DRAFTED,
        accuracy=1.0,
        shows=("kept_drafts",),
    ),
    *(
        CheckPass(
            name=f"drafts wrong, {rollback.value}",
            about=f"up to 4 drafts a pass, some of them wrong, undone by {rollback.value}",
            options={**DRAFTED, "rollback": rollback.value},
            accuracy=0.7,
            shows=("kept_drafts", "rejected_drafts"),
        )
        for rollback in Rollback
    ),
    CheckPass(
        name="lookup", about="drafts of prompt lookup", options=DRAFTED, shows=("kept_drafts",)
    ),
    CheckPass(
        name="mtp",
        about="drafts of the model's own head",
        options={**DRAFTED, "speculate": "mtp"},
        shows=("drafts",),
        needs_head=True,
    ),
    CheckPass(
        name="everything",
        about="cache, chunks, company, preemption and wrong drafts",
        arrival=Arrival.JOINING,
        options={**DRAFTED, "prefix_cache": True, "max_num_batched_tokens": 24},
        num_rounds=2,
        preempts=True,
        accuracy=0.7,
        shows=("cached_tokens", "preemptions", "kept_drafts", "rejected_drafts"),
    ),
)
