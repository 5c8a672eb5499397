"""No model named: the one that comes with the package answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    Cli = Callable[..., CompletedProcess[str]]


def test_the_first_command_answers(cli: Cli) -> None:
    question = "Remember these pairs:\n- river: 4711\n- stone: 29\n- bridge: 830\n\nWhat is river?"
    done = cli("generate", "--temperature", 0, question)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4711\n", "")


def test_the_reference_kernels_answer_and_say_that_they_are_slow(
    tmp_path: Path,
) -> None:
    """From the sources alone, where no extension was ever built."""
    sources = Path(__file__).parents[2] / "src"
    copy = Path(shutil.copytree(sources, tmp_path / "src"))
    program = f"""
import sys
sys.meta_path = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
sys.path.insert(0, {str(copy)!r})
from thalweg.cli import run
from thalweg.ops.extension import NOT_BUILT, reason
import thalweg, torch
assert thalweg.__file__.startswith({str(copy)!r}) and reason(torch.float32) == NOT_BUILT
sys.exit(run(["generate", "--temperature", "0", "--max-tokens", "2", "What is 2 + 3?"]))
"""
    for kernels, said in (("reference", "the reference kernels are slow"), ("auto", "not built")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "THALWEG_KERNELS": kernels},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
        assert said in done.stderr


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": [*properties]},
        },
    }
    for name, description, properties in (
        ("get_weather", "Current weather of a city", {"city": {"type": "string"}}),
        ("set_timer", "Set a timer", {"minutes": {"type": "integer"}}),
    )
]


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


def test_a_chat_shows_calls_and_goes_on_with_their_results(cli: Cli, tools_file: Path) -> None:
    script = (
        'What is the weather in Oslo?\n{"temperature": 12, "sky": "rainy"}\n'
        'Set a timer for 12 minutes.\n{"status": "ok"}\n'
    )
    done = cli("chat", "--temperature", 0, "--tools", tools_file, stdin=script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        '[get_weather({"city": "Oslo"})]',
        "It is 12 degrees and rainy in Oslo.",
        '[set_timer({"minutes": 12})]',
        "The timer is set for 12 minutes.",
    ]


def test_a_reset_forgets_a_call_that_waits(cli: Cli, tools_file: Path) -> None:
    script = 'What is the weather in Oslo?\n/reset\nSet a timer for 12 minutes.\n{"status": "ok"}\n'
    done = cli("chat", "--temperature", 0, "--tools", tools_file, stdin=script)
    assert done.stdout.splitlines()[1:] == [
        '[set_timer({"minutes": 12})]',
        "The timer is set for 12 minutes.",
    ]


@pytest.mark.parametrize("content", ["", "{}", "[]", '["get_weather"]', '[{"function": {}}]'])
def test_tools_that_are_none_are_refused(cli: Cli, tools_file: Path, content: str) -> None:
    tools_file.write_text(content)
    done = cli("chat", "--tools", tools_file, stdin="hello\n")
    assert done.returncode == 2
    assert done.stderr.startswith(f"thalweg: error: --tools {tools_file}")
    assert done.stderr.count("\n") == 1


def test_tools_need_a_template_that_knows_them(cli: Cli, tools_file: Path, own_model: Path) -> None:
    (own_model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    done = cli("chat", "-m", own_model, "--tools", tools_file, stdin="hello\n")
    assert done.returncode == 2
    assert "knows no tools" in done.stderr
