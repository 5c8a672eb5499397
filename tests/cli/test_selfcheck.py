"""`thalweg selfcheck`: the table, the object, the exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.runner import sampler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    import pytest

    from thalweg.ops.sampling import Draw
    from thalweg.scheduler.plan import SamplingRow

    Cli = Callable[..., CompletedProcess[str]]

SMALL = ("--threads", 1, "--cache-memory", "8MiB", "--tokens", 8)


def test_the_table_ends_in_a_verdict(cli: Cli, model: Path) -> None:
    done = cli("selfcheck", model, *SMALL)
    assert done.returncode == 0 and done.stderr == ""
    rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert any("batched" in row and "equal" in row for row in rows)
    assert done.stdout.splitlines()[-1].startswith("All bits are equal: ")


def test_one_object_tells_all(cli: Cli, model: Path) -> None:
    done = cli("selfcheck", "-m", model, *SMALL, "--seed", 3, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["equal"] is True and found["promised"] is True and found["kernels"] == ["cpu"]
    passes = {each["name"]: each for each in found["passes"]}
    assert passes["cached"]["happened"]["cached_tokens"] > 0
    assert passes["parked"]["happened"]["parkings"] > 0
    assert all(each["difference"] is None and each["passed"] for each in passes.values())


def test_a_difference_is_told_and_ends_with_1(
    cli: Cli, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens after drafts are drawn as if at another temperature."""
    right = sampler.draw

    def draw(row: SamplingRow) -> Draw:
        given = right(row)
        return replace(given, temperature=50.0) if row.num_drafts else given

    monkeypatch.setattr(sampler, "draw", draw)
    done = cli("selfcheck", model, *SMALL)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == "Bits differ."
    told = [line for line in lines if line.startswith("drafts right: ")]
    assert len(told) == 1 and ", answer 0, token " in told[0] and " instead of " in told[0]


def test_kernels_that_promise_nothing_say_so(cli: Cli, model: Path) -> None:
    done = cli("selfcheck", model, *SMALL, "--kernels", "torch")
    assert "promise no equal bits" in done.stdout.splitlines()[-1]
