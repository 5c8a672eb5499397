"""`thalweg chat`, through a pipe and at a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from thalweg import LLM, SamplingParams

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Cli = Callable[..., subprocess.CompletedProcess[str]]
    Start = Callable[..., subprocess.Popen[bytes]]

FLAGS = ("--seed", 4, "--max-tokens", 8, "--ignore-eos")
PATIENCE = 120
"""Seconds until a program that says nothing is taken to hang."""
PARAMS = SamplingParams(seed=4, temperature=0.7, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_llm_dir: Path) -> LLM:
    return LLM(tiny_llm_dir)


def expected_answers(llm: LLM, questions: list[str], system: str | None = None) -> list[str]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    for question in questions:
        messages.append({"role": "user", "content": question})
        answer = llm.chat(messages, PARAMS)[0].text
        messages.append({"role": "assistant", "content": answer})
    return [message["content"] for message in messages if message["role"] == "assistant"]


def test_three_turns_of_a_script(cli: Cli, model: Path, llm: LLM) -> None:
    questions = ["the river", "is it deep?", "and the bed"]
    done = cli("chat", "-m", model, *FLAGS, stdin="\n".join(questions))
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == "".join(answer + "\n" for answer in expected_answers(llm, questions))


def test_reset_forgets_all_but_the_system_message(cli: Cli, model: Path, llm: LLM) -> None:
    done = cli("chat", "-m", model, *FLAGS, "--system", "be deep", stdin="one\n/reset\n\ntwo\n")
    answers = [expected_answers(llm, [each], "be deep")[0] for each in ("one", "two")]
    assert done.stdout == "".join(answer + "\n" for answer in answers)


def test_stats_help_and_exit(cli: Cli, model: Path) -> None:
    done = cli("chat", "-m", model, *FLAGS, stdin="/stats\na\n/stats\n/help\n/exit\nb\n")
    assert done.returncode == 0
    assert "conversation: 0 answers, 0 tokens; context: 0 of 1024 tokens" in done.stdout
    assert "last answer: 8 tokens" in done.stdout
    assert "conversation: 1 answers, 8 tokens" in done.stdout
    assert "/reset" in done.stdout
    assert done.stdout.endswith("stop the answer\n")


def test_a_script_learns_of_an_unknown_command_by_the_exit_code(cli: Cli, model: Path) -> None:
    done = cli("chat", "-m", model, *FLAGS, stdin="/resett now\na\n")
    assert done.returncode == 1
    assert done.stderr == "thalweg: error: unknown command /resett: /help lists them\n"
    assert done.stdout.count("\n") >= 1


def test_a_full_context_keeps_the_conversation(cli: Cli, model: Path, llm: LLM) -> None:
    long = "深" * 500
    done = cli("chat", "-m", model, *FLAGS, stdin=f"one\n{long}\ntwo\n")
    assert done.returncode == 1
    assert done.stderr.startswith("thalweg: error: the context is full: ")
    assert "/reset" in done.stderr
    assert done.stderr.count("\n") == 1
    answers = expected_answers(llm, ["one", "two"])
    assert done.stdout == "".join(answer + "\n" for answer in answers)


@contextmanager
def terminal(start: Start, *arguments: object) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = start("chat", *arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self._fd = fd
        self._unread = b""

    def wait_for(self, text: str) -> str:
        """What came up to and with `text`."""
        while text.encode() not in self._unread:
            if not select.select([self._fd], [], [], PATIENCE)[0]:
                pytest.fail(f"{text!r} did not come; there was {self._unread!r}")
            self._unread += os.read(self._fd, 4096)  # fails when the program has ended
        seen, _, self._unread = self._unread.partition(text.encode())
        return (seen + text.encode()).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ctrl_c_until(self, text: str) -> None:
        """Presses again when nothing comes: readline prints its prompt shortly before it waits, and
        a signal between the two is only seen with the next key (CPython's `readline_until_enter`).
        """
        for _ in range(PATIENCE):
            self.ctrl_c()
            if select.select([self._fd], [], [], 1.0)[0]:
                break
        self.wait_for(text)


def test_ctrl_c_stops_the_answer_and_not_the_program(start: Start, model: Path, llm: LLM) -> None:
    endless = ("--temperature", 0, "--logit-bias", "65=100", "--ignore-eos")
    with terminal(start, "-m", model, *endless) as chat:
        chat.wait_for(">>> ")
        chat.ctrl_c_until("(Ctrl-D or /exit leaves)")  # with no answer to stop
        chat.wait_for(">>> ")
        chat.type("tell me\n")
        chat.wait_for(llm.tokenizer.decode([65] * 3))
        chat.ctrl_c()
        chat.wait_for("[stopped]")
        chat.wait_for(">>> ")
        chat.type("/stats\n")
        assert "conversation: 1 answers" in chat.wait_for(" of 1024 tokens")
        chat.wait_for(">>> ")
        chat.type("/reset\n")
        chat.wait_for("[a new conversation]")
        chat.wait_for(">>> ")
        chat.type("\x04")
        assert chat.process.wait(PATIENCE) == 0
