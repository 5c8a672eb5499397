"""The command as a whole: help, version, exit codes, what it imports."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer

import thalweg
from thalweg.cli import app
from thalweg.cli.byte_size import parse_byte_size
from thalweg.config import EngineConfig, SamplingParams
from thalweg.memory.sizes import format_nbytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout) == (0, f"thalweg {thalweg.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["chat", "--help"]])
def test_help(cli: Cli, arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.returncode == 0
    assert "Usage: thalweg" in done.stdout
    assert done.stderr == ""


def test_help_tells_the_exit_codes(cli: Cli) -> None:
    for command in ("generate", "chat"):
        assert "Exit codes: 0" in cli(command, "--help").stdout


def test_without_a_command_help_is_shown(cli: Cli) -> None:
    done = cli()
    assert done.returncode == 2
    assert "Usage: thalweg" in done.stdout + done.stderr


def test_every_option_of_a_request_and_of_the_engine_has_a_flag() -> None:
    command = typer.main.get_command(app).commands["generate"]  # type: ignore[attr-defined]  # a group
    flags = {flag for parameter in command.params for flag in parameter.opts}
    spelt = {"stop_token_ids": "stop-token-id"}
    for config in (SamplingParams, EngineConfig):
        for name in config.__dataclass_fields__:
            assert f"--{spelt.get(name, name.replace('_', '-'))}" in flags


def test_nothing_heavy_is_imported_before_a_command_runs() -> None:
    """So that help and errors of usage come at once."""
    code = "import sys, thalweg.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "numpy", "tokenizers", "jinja2", "gguf", "safetensors"}


def test_the_model_may_come_from_the_environment(
    cli: Cli, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THALWEG_MODEL", str(model))
    assert cli("generate", "--max-tokens", 1, "a").returncode == 0


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("2048", 2048),
        ("512MiB", 512 << 20),
        ("2GiB", 2 << 30),
        ("2G", 2 << 30),
        ("1.5 gib", 3 << 29),
        ("2GB", 2_000_000_000),
        ("7B", 7),
    ],
)
def test_byte_sizes(text: str, nbytes: int) -> None:
    assert parse_byte_size(text) == nbytes


def test_byte_sizes_are_shown_in_the_largest_unit() -> None:
    shown = [format_nbytes(n) for n in (0, 1023, 1024, 3 << 29)]
    assert shown == ["0 B", "1023 B", "1 KiB", "1.5 GiB"]
