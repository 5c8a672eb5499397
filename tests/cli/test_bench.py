"""`thalweg bench`: what is measured, how it is written, and what is refused."""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import TYPE_CHECKING

import pytest

from thalweg import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    Cli = Callable[..., CompletedProcess[str]]

QUICK = ("--threads", 1, "--cache-memory", "8MiB", "-r", 2)


def test_every_combination_as_json(cli: Cli, model: Path) -> None:
    sizes = ("-p", "8,24", "-g", 3, "-d", "0,32", "-s", "1,3")
    done = cli("bench", "-m", model, *QUICK, *sizes, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["test"], row["num_seqs"]) for row in rows] == [
        (test + depth, num_seqs)
        for depth in ("", " @ d32")
        for num_seqs in (1, 3)
        for test in ("pp8", "pp24", "tg3")
    ]
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    for row in rows:
        rates = [row["num_tokens"] * row["num_seqs"] / each for each in row["seconds"]]
        assert len(rates) == 2
        assert row["tokens_per_second"] == statistics.fmean(rates)
        assert row["stddev"] == statistics.stdev(rates)
        assert (row["model"], row["version"]) == (model.name, __version__)
        assert (row["num_threads"], row["dtype"], row["weights"]) == (1, "float32", "F32")
        assert row["commit"] is None or head.startswith(row["commit"].removesuffix("-dirty"))
        assert "processors" in row["machine"]


def test_table(cli: Cli, model: Path) -> None:
    done = cli("bench", "-m", model, *QUICK, "-p", "0", "-g", "2,4")
    assert done.returncode == 0, done.stderr
    about, empty, head, _, *rows = done.stdout.splitlines()
    assert about.startswith(f"thalweg {__version__}") and empty == ""
    assert head == "| model | size | params | dtype | threads | sequences | test | t/s |"
    assert [row.split(" | ")[-2] for row in rows] == ["tg2", "tg4"]
    assert all(" ± " in row and row.startswith("| qwen3_5_text F32 | ") for row in rows)


@pytest.mark.parametrize("option", ["prompt", "generate", "depth", "sequences"])
@pytest.mark.parametrize("value", ["", "a", "1,,2", "-1", "1.5", "99999999", "999999999"])
def test_what_is_no_list_of_counts_is_refused(cli: Cli, option: str, value: str) -> None:
    done = cli("bench", "-m", "/no/such/model", f"--{option}={value}")
    assert done.returncode == 2 and done.stdout == ""
    assert repr(value) in done.stderr and "such as 128,512" in done.stderr


def test_no_sequences_are_refused(cli: Cli) -> None:
    done = cli("bench", "-m", "/no/such/model", "-s", "0")
    assert done.returncode == 2 and "'0' is not allowed: numbers from 1" in done.stderr


def test_a_depth_that_the_cache_cannot_know_is_refused(cli: Cli, model: Path) -> None:
    done = cli("bench", "-m", model, *QUICK, "-p", 8, "-g", 0, "-d", 20)
    assert (
        done.returncode == 2 and "--depth 20 is not a multiple of the block size, 16" in done.stderr
    )


def test_sequences_that_do_not_fit_are_refused(cli: Cli, model: Path) -> None:
    few = ("--max-num-seqs", 2)
    done = cli("bench", "-m", model, *QUICK, *few, "-p", 0, "-g", 8, "-s", 3)
    assert done.returncode == 2 and "at most 2 can" in done.stderr
