"""No model named: the one that comes with the package answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess


def test_the_first_command_answers(cli: Callable[..., CompletedProcess[str]]) -> None:
    question = "Remember these pairs:\n- river: 4711\n- stone: 29\n- bridge: 830\n\nWhat is river?"
    done = cli("generate", "--temperature", 0, question)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4711\n", "")
