"""What one step computes, and what came of it. Host values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.memory.manager import BlockCopy, Fold, Reservation
    from thalweg.memory.offload.host_tier import Move
    from thalweg.scheduler.constraint import TokenConstraint
    from thalweg.scheduler.cost import Load
    from thalweg.scheduler.request import Request, Sample

FinishReason = Literal["stop", "length", "abort", "timeout"]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledRow:
    """One sequence's share of a step: the next tokens it has that are not computed yet, and after
    the last of them its drafts."""

    sample: Sample
    reservation: Reservation
    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class SamplingRow:
    """A token to be drawn. Several rows may share one row of logits."""

    request: Request
    sample_index: int
    logits_row: int
    """Index into the step's `logits_rows`."""
    history: Sequence[int]
    """The prompt and the answer before the token that is drawn."""
    num_drafts: int = 0
    """Tokens at the end of it that are drafts: the draw counts if they are right."""

    @property
    def constraint(self) -> TokenConstraint | None:
        constraints = self.request.constraints
        return constraints[self.sample_index] if constraints else None


@dataclass(frozen=True, slots=True, eq=False)
class ScoringRow:
    """A prompt token whose logprob is wanted."""

    sample: Sample
    logits_row: int
    token_id: int


@dataclass(frozen=True, slots=True)
class Pending:
    """What is to be made before anyone reads the caches, in this order."""

    folds: tuple[Fold, ...] = ()
    copies: tuple[BlockCopy, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    rows: tuple[ScheduledRow, ...]
    logits_rows: tuple[int, ...]
    """Packed rows of the step whose logits are wanted, ascending."""
    sampling: tuple[SamplingRow, ...]
    scoring: tuple[ScoringRow, ...]
    folds: tuple[Fold, ...]
    """States to bring up to date before the pass."""
    copies: tuple[BlockCopy, ...]
    """Block copies to make before the pass."""
    moves: tuple[Move, ...]
    """To and from the host tier, to be made in this order after the folds and the copies."""
    load: Load


@dataclass(frozen=True, slots=True)
class Token:
    """A token and, where they are wanted, its logprob and the most likely alternatives."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    """(id, logprob), most likely first."""


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    sampled: tuple[Token, ...]
    """One for each of the plan's `sampling` rows."""
    scored: tuple[Token, ...]
    """One for each of the plan's `scoring` rows."""


@dataclass(frozen=True, slots=True, eq=False)
class NewToken:
    """A token that an answer has gained, and whether it ends there."""

    sample: Sample
    token: Token
    finish_reason: FinishReason | None
