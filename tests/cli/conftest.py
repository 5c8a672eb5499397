"""The command as a user runs it, in this process where nothing speaks against it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest

from thalweg.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = "import sys; from thalweg.cli import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CompletedProcess[str]]:
    """cli("generate", ..., stdin="") -> exit code and output; nothing is a terminal."""
    monkeypatch.delenv("THALWEG_MODEL", raising=False)

    def call(*arguments: object, stdin: str = "") -> CompletedProcess[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        words = [str(argument) for argument in arguments]
        code = run(words)
        captured = capsys.readouterr()
        return CompletedProcess(words, code, captured.out, captured.err)

    return call


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """The command as a process of its own; keyword arguments are those of `Popen`."""

    def call(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", COMMAND, *map(str, arguments)]
        environ = {**os.environ, "TERM": "dumb", "THALWEG_THREADS": "1"}
        return subprocess.Popen(words, env=environ, **options)  # type: ignore[call-overload]  # any

    return call


@pytest.fixture
def model(tiny_llm_dir: Path) -> Path:
    """A random model with a chat template."""
    return tiny_llm_dir


@pytest.fixture
def own_model(tiny_llm_dir: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(tiny_llm_dir, tmp_path / "model"))
