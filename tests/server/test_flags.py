"""`thalweg serve`: where options come from, and that the documentation has them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from thalweg.cli import run

if TYPE_CHECKING:
    from typing import Any

ROOT = Path(__file__).parent.parent.parent


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["serve", "--print-config", *arguments]) == 0
    values: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return values


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("port: 1\nhost: file\nmax-num-seqs: 2\ncache_memory: 1GiB\nlog_json: true\n")
    monkeypatch.setenv("THALWEG_PORT", "3")
    monkeypatch.setenv("THALWEG_MAX_NUM_SEQS", "4")
    monkeypatch.setenv("THALWEG_API_KEYS", "secret other")
    got = printed(capsys, "some/model", "--config", str(file), "--port", "5")
    assert (got["port"], got["max_num_seqs"], got["host"]) == (5, 4, "file")
    assert (got["cache_memory"], got["log_json"], got["model"]) == (1 << 30, True, "some/model")
    assert got["api_keys"] == ["(hidden)"] * 2


@pytest.mark.parametrize(
    ("text", "named"),
    [("prot: 1", "prot"), ("port: many", "port"), ("[1]", "options"), ("a: [", "YAML")],
)
def test_a_file_that_is_wrong_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, named: str
) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(text)
    assert run(["serve", "--print-config", "--config", str(file)]) != 0
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value"), [("--port", "70000"), ("--keep-alive", "0"), ("--tool-format", "pythonic")]
)
def test_a_value_out_of_range_is_refused(
    capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    assert run(["serve", "--print-config", flag, value]) != 0
    assert value in capsys.readouterr().err


def test_the_documentation_has_every_flag() -> None:
    program = [sys.executable, str(ROOT / "tools" / "flag_table.py")]
    table = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert table in (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
