"""The layout is a promise: imports follow the table, host code is torch-free, files are short."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import thalweg

assert thalweg.__file__ is not None
ROOT = Path(thalweg.__file__).parent  # `__path__` of an editable install begins elsewhere
PACKAGE = "thalweg"
ALLOWED = {
    "ids": "",
    "errors": "",
    "config": "errors",
    "batch": "ids",
    "ops": "ids errors config batch",
    "memory": "ids errors config",
    "layers": "ids errors config batch ops memory",
    "models": "errors config batch memory layers ops",
    "text": "ids errors config",
    "speculative": "ids errors config batch ops memory models",
    "scheduler": "ids errors config memory",
    "runner": "ids errors config batch ops memory models speculative scheduler",
    "engine": "errors config memory models text speculative scheduler runner",
    "server": "errors config text engine",
    "cli": "errors config text models memory engine server",
}
TORCH_FREE = (
    "ids",
    "errors",
    "config",
    "memory",
    "layers/cache_spec",
    "text",
    "scheduler",
    "models/headers",
    "models/hf_config",
    "models/plan",
    "models/registry",
    "speculative/counts",
    "speculative/gate",
    "speculative/lookup",
)
"""Modules, and packages with all that is in them; beside them every `models/*_plan`."""
WITH_TORCH = ("memory/storage", "memory/offload/storage")
PUBLIC = ("cli", "server")
"""Parts above everything: they may use what users import, `from thalweg import LLM`."""
MAX_LINES = {"ops": 600}
FILES = [p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"]
each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))


EXPORTS = {f"{PACKAGE}.{name}" for name in getattr(thalweg, "__all__", ())}


def where(path: Path) -> str:
    """`models/plan` for src/thalweg/models/plan.py, `models` for its __init__."""
    return path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__")


def module(path: Path) -> str:
    return f"{PACKAGE}.{where(path).replace('/', '.')}"


def imported(path: Path) -> set[str]:
    """Every module named in an import, also under TYPE_CHECKING and inside functions."""
    names: set[str] = set()
    package = module(path).split(".")[: None if path.name == "__init__.py" else -1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{origin}.{a.name}" for a in node.names}
    return names


def our_parts(names: set[str]) -> set[str]:
    ours = {n for n in names if n.startswith(f"{PACKAGE}.")} - EXPORTS
    return {n.split(".")[1] for n in ours}


def is_torch_free(name: str) -> bool:
    in_list = any(name == part or name.startswith(f"{part}/") for part in TORCH_FREE)
    is_plan = name.startswith("models/") and name.endswith("_plan")
    return (in_list or is_plan) and name not in WITH_TORCH


HOST_ONLY = [p for p in FILES if is_torch_free(where(p))]


@each_file
def test_imports_follow_the_table(path: Path) -> None:
    part = where(path).split("/")[0]
    assert part in ALLOWED, f"{part} is not in the table"
    forbidden = our_parts(imported(path)) - {part, *ALLOWED[part].split()}
    assert not forbidden, f"{part} may not import {sorted(forbidden)}"


@each_file
def test_only_what_is_above_the_engine_uses_the_public_names(path: Path) -> None:
    """`from thalweg import LLM` from below would tie everything to everything."""
    if where(path).split("/")[0] not in PUBLIC:
        assert not imported(path) & {PACKAGE, *EXPORTS}


@each_file
def test_files_are_short(path: Path) -> None:
    most = MAX_LINES.get(where(path).split("/")[0], 400)
    assert len(path.read_text().splitlines()) <= most, "split it by concept"


@each_file
def test_the_environment_is_read_in_config_alone(path: Path) -> None:
    if where(path).split("/")[0] == "config":
        return
    text = path.read_text()
    read = [name for name in ("os.environ", "os.getenv", "import environ") if name in text]
    assert not read, f"{read[0]} belongs in config/"


def test_the_table_has_no_cycles() -> None:
    """Every arrow points to something that could be built before."""
    done: set[str] = set()
    while ready := {
        p for p, below in ALLOWED.items() if p not in done and {*below.split()} <= done
    }:
        done |= ready
    assert done == {*ALLOWED}


def test_host_only_code_does_not_load_torch() -> None:
    """Transitively, each module in an interpreter that has loaded nothing else of ours.

    One process forks for each, so that the interpreter starts once.
    """
    program = """
import os, sys
for name in sys.argv[1:]:
    if os.fork() == 0:
        __import__(name)
        print(name, "torch" in sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
    names = [PACKAGE, *map(module, HOST_ONLY)]
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *names],
        capture_output=True,
        text=True,
        timeout=120,
    )
    results = dict(line.split() for line in run.stdout.splitlines())
    assert {*results} == {*names}, run.stderr
    assert [n for n in names if results[n] == "True"] == [], "these load torch"


@pytest.mark.parametrize("part", TORCH_FREE)
def test_the_host_only_list_names_what_exists(part: str) -> None:
    assert (ROOT / f"{part}.py").exists() or (ROOT / part / "__init__.py").exists()


def test_every_exported_name_exists() -> None:
    for name in getattr(thalweg, "__all__", ()):
        assert getattr(thalweg, name) is not None
    for path in (p for p in FILES if p.name == "__init__.py"):
        loaded = importlib.import_module(module(path))
        for name in getattr(loaded, "__all__", ()):
            assert hasattr(loaded, name), f"{module(path)}.{name}"
