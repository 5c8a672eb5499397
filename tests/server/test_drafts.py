"""What the server tells of guesses: in the answer, the log, the metrics and the panel."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from server_model import running
from thalweg import LLM

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_guesses_are_told_everywhere_and_alike(
    tiny_llm_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "thalweg.server")
    with (
        LLM(tiny_llm_dir, max_model_len=512, threads=1, speculate="lookup") as llm,
        running(llm, log_json=True) as server,
    ):
        done = server.chat(
            max_tokens=60, temperature=0, ignore_eos=True, logit_bias={"70": 100}
        ).json()
        metrics = server.get("/metrics").text
        state = server.get("/v1/engine").json()
    drafted, kept = (done["timings"][f"{name}_tokens"] for name in ("drafted", "kept"))
    assert drafted >= kept > 0
    record = next(r.getMessage() for r in caplog.records if r.name == "thalweg.server")
    line = json.loads(record)
    assert (line["drafted"], line["kept"]) == (drafted, kept)
    assert (state["drafted_tokens"], state["kept_tokens"]) == (drafted, kept)
    assert state["recent"][0]["kept_tokens"] == kept
    assert state["mean_accepted_length"] > 1 and 0 < state["acceptance"][0] <= 1
    counted = [row for row in metrics.splitlines() if row.startswith("thalweg_kept_tokens_total{")]
    assert sum(float(row.split()[-1]) for row in counted) == kept
    assert 'thalweg_gate_decisions_total{decision="measuring"}' in metrics
    assert state["gate"]["num_measuring"] > 0


def test_without_guesses_the_log_line_has_none(
    tiny_llm_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "thalweg.server")
    with LLM(tiny_llm_dir, max_model_len=512, threads=1) as llm, running(llm) as server:
        done = server.chat(max_tokens=3).json()
        assert server.get("/v1/engine").json()["acceptance"] == []
    assert done["timings"]["drafted_tokens"] == 0
    record = next(r.getMessage() for r in caplog.records if r.name == "thalweg.server")
    assert "drafted" not in record
