"""What the build says on a machine that cannot compile."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CMAKE = shutil.which("cmake")
NINJA = shutil.which("ninja")

pytestmark = pytest.mark.skipif(not (CMAKE and NINJA), reason="no cmake or no ninja")


def configure(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Where nothing but cmake and ninja is installed."""
    programs = path / "bin"
    programs.mkdir()
    for program in (CMAKE, NINJA):
        assert program is not None
        (programs / Path(program).name).symlink_to(program)
    environ = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX")}
    return subprocess.run(
        [
            *("cmake", "-S", str(ROOT), "-B", str(path / "build"), "-G", "Ninja"),
            "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
            *options,
        ],
        env=environ | {"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    done = configure(tmp_path)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    for words in (
        "need a C++20 compiler, and there is none",
        "apt install g++",
        "THALWEG_EXTENSION=OFF",
    ):
        assert words in said


def test_without_the_extension_it_needs_none(tmp_path: Path) -> None:
    done = configure(tmp_path, "-DTHALWEG_EXTENSION=OFF")
    assert done.returncode == 0, done.stderr
    assert "Thalweg will be slow" in done.stdout
