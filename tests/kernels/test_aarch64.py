"""The kernels compile for aarch64, where a cross compiler is installed (g++-aarch64-linux-gnu)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER = shutil.which("aarch64-linux-gnu-g++")
SOURCES = Path(__file__).parents[2] / "csrc"
WITH_PYTHON = {"module.cpp"}
FLAGS = "-std=gnu++20 -O1 -fPIC -ffp-contract=off -fno-math-errno -Wall -Wextra -Werror -Wno-psabi"


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no cross compiler for aarch64")
@pytest.mark.parametrize(
    "source", sorted(p.name for p in SOURCES.glob("*.cpp") if p.name not in WITH_PYTHON)
)
def test_compiles(source: str, tmp_path: Path) -> None:
    assert COMPILER is not None
    command = [COMPILER, *FLAGS.split(), "-DTHALWEG_LEVEL=portable", "-c", str(SOURCES / source)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "out.o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
