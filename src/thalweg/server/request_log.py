"""One line for every request that the engine has taken, and for every one it has not."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thalweg.engine.outputs import RequestOutput
    from thalweg.server.api_errors import ApiError

LOGGER = logging.getLogger("thalweg.server")


class RequestLog:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def ended(self, output: RequestOutput, labels: Mapping[str, Any]) -> None:
        """`finished`, `aborted` (cancelled, or the client has gone) or `timeout`."""
        reasons = [answer.finish_reason for answer in output.outputs]
        times = output.timings
        kind = next((r for r in reasons if r in ("abort", "timeout")), "finished")
        drafts = output.drafts if output.drafts.num_passes else None
        num_timed = output.num_generated - len(reasons)
        self._write(
            {
                "event": "aborted" if kind == "abort" else kind,
                "id": output.request_id,
                "reason": ",".join(dict.fromkeys(reasons)),
                "prompt": len(output.prompt_token_ids),
                "cached": output.num_cached_tokens,
                "cache_miss": output.cache_miss,
                "tokens": output.num_generated,
                "drafted": drafts and drafts.num_drafted,
                "kept": drafts and drafts.num_kept,
                "ttft_ms": round(1000 * (times.queue + times.prompt), 1),
                "tokens_per_s": _rate(num_timed, times.generation),
                **labels,
            }
        )

    def failed(self, request_id: str, error: Exception, labels: Mapping[str, Any]) -> None:
        self._write({"event": "error", "id": request_id, "error": str(error), **labels})

    def refused(self, path: str, error: ApiError) -> None:
        """It never got as far as the engine."""
        self._write(
            {"event": "refused", "path": path, "status": error.status, "error": error.message}
        )

    def _write(self, fields: Mapping[str, Any]) -> None:
        fields = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            LOGGER.info(json.dumps({"time": time.time(), **fields}, ensure_ascii=False))
        else:
            event = fields["event"]
            rest = (f"{name}={_word(value)}" for name, value in fields.items() if name != "event")
            LOGGER.info(" ".join([event, *rest]))


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 and count > 0 else None


def _word(value: Any) -> str:
    """On one line, whatever a client has sent."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
