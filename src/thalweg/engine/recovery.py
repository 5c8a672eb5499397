"""A request whose passes fail ends alone, although nobody knows at first which one it is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.engine.engine import StepOutput
from thalweg.errors import RequestFailed

if TYPE_CHECKING:
    from thalweg.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Failure:
    request_id: str
    error: RequestFailed


class Recovery:
    """Steps an engine through failures of single requests.

    Of a pass that failed all requests are suspects. Each runs alone until it has its next token,
    which is as far as the failed pass would have brought it; the one that fails alone is ended, and
    the others, having the same bits as ever, do not notice.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._suspects: deque[str] = deque()

    def step(self) -> StepOutput | Failure:
        while self._suspects and not self._engine.is_underway(self._suspects[0]):
            self._clear()
        try:
            step = self._engine.step()
        except Exception as error:  # whatever it is, it concerns no request but the guilty one
            return self._failed(error)
        if self._suspects and any(d.request_id == self._suspects[0] for d in step.deltas):
            self._clear()
        return step

    def _failed(self, error: Exception) -> StepOutput | Failure:
        involved = self._engine.last_step
        if len(involved) > 1:
            self._suspects = deque(involved)
            self._engine.isolate(self._suspects[0])
            return StepOutput()
        (guilty,) = involved
        self._engine.cancel(guilty)
        failed = RequestFailed(f"computing the request failed: {error!r}")
        failed.__cause__ = error
        return Failure(guilty, failed)

    def _clear(self) -> None:
        self._suspects.popleft()
        self._engine.isolate(self._suspects[0] if self._suspects else None)
