"""How a request is treated. Nothing in here changes a token of its answers."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.errors import RequestError

MAX_PRIORITY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Values out of range raise `RequestError`."""

    priority: int = 0
    """Lower runs first. A waiting request takes the place of a running one of a higher number."""
    timeout: float | None = None
    """Seconds from admission after which it ends with what it has, with finish reason `timeout`."""
    cache_salt: str = ""
    """Prompts share cached prefixes with those of the same salt alone."""

    def __post_init__(self) -> None:
        priority, timeout = self.priority, self.timeout
        is_int = isinstance(priority, int) and not isinstance(priority, bool)
        if not is_int or abs(priority) > MAX_PRIORITY:
            allowed = f"an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            raise RequestError(f"priority = {priority!r:.80} is not allowed: {allowed}")
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and 0 < timeout < float("inf")):
            raise RequestError(f"timeout = {timeout!r:.80} is not allowed: seconds > 0, or None")
        if not isinstance(self.cache_salt, str):
            raise RequestError(f"cache_salt = {self.cache_salt!r:.80} is not allowed: a string")
