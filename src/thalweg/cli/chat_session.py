"""The loop of `thalweg chat`: read a line, do what it says."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from thalweg.cli.exit_codes import ExitCode
from thalweg.cli.interrupts import Interrupts
from thalweg.errors import RequestError

if TYPE_CHECKING:
    from thalweg.cli.conversation import Conversation

HELP = """\
/reset  forget the conversation, but not the system message
/stats  tokens and speed of the last answer and of all, and how full the context is
/help   this list
/exit   leave, as Ctrl-D does
Ctrl-C  stop the answer"""


class ChatSession:
    def __init__(self, conversation: Conversation, *, by_hand: bool) -> None:
        """`by_hand`: someone types; otherwise a script does, and gets nothing but answers."""
        self._conversation = conversation
        self._by_hand = by_hand
        self._refused = False
        self._commands = {"/reset": self._reset, "/stats": self._stats, "/help": self._help}

    def run(self) -> ExitCode:
        with Interrupts() as interrupts:
            while (line := self._read(interrupts)) is not None:
                if line == "/exit":
                    break
                if line.startswith("/"):
                    self._commands.get(line, lambda: self._unknown(line))()
                elif line:
                    self._answer(line, interrupts)
                if interrupts.requested and not self._by_hand:
                    return ExitCode.INTERRUPTED
        return ExitCode.SOME_FAILED if self._refused else ExitCode.OK

    def _read(self, interrupts: Interrupts) -> str | None:
        """The next line, or None at the end."""
        while True:
            try:
                with interrupts.at_once():
                    return input(self._prompt() if self._by_hand else "").strip()
            except EOFError:
                if self._by_hand:
                    print()
                return None
            except KeyboardInterrupt:
                if not self._by_hand:
                    raise
                print("\n(Ctrl-D or /exit leaves)")

    def _prompt(self) -> str:
        waiting = self._conversation.waiting
        return ">>> " if waiting is None else f"result of {waiting}: "

    def _answer(self, line: str, interrupts: Interrupts) -> None:
        try:
            pieces = self._conversation.ask(line)
        except RequestError as error:
            self._refuse(str(error))
            return
        said = False
        with closing(pieces):
            for piece in pieces:
                print(piece, end="", flush=True)
                said = said or bool(piece)
                if interrupts.requested:
                    break
        calls = self._conversation.calls
        if said or not calls:
            print()
        if calls and self._conversation.waiting is calls[0]:  # this answer's
            for call in calls:
                print(f"[{call}]")
        if self._by_hand and interrupts.take():
            print("[stopped]")
        elif self._by_hand and self._conversation.turns[-1].finish_reason == "length":
            print("[cut off: --max-tokens or the context is reached]")

    def _reset(self) -> None:
        self._conversation.reset()
        if self._by_hand:
            print("[a new conversation]")

    def _stats(self) -> None:
        turns = self._conversation.turns
        if turns:
            last = turns[-1]
            print(
                f"last answer: {last.answer_tokens} tokens, {last.tokens_per_second:.1f} tokens/s, "
                f"first token after {last.first_token:.2f} s"
            )
        print(
            f"conversation: {len(turns)} answers, {sum(t.answer_tokens for t in turns)} tokens; "
            f"context: {self._conversation.context_used} of {self._conversation.max_tokens} tokens"
        )

    def _help(self) -> None:
        print(HELP)

    def _unknown(self, line: str) -> None:
        self._refuse(f"unknown command {line.split()[0]}: /help lists them")

    def _refuse(self, message: str) -> None:
        """The conversation goes on; a script learns of it by the exit code."""
        print(f"thalweg: error: {message}", file=sys.stderr)
        self._refused = not self._by_hand
