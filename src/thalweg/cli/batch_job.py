"""A line of `thalweg generate --input` as something the engine is sure to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.cli.batch_line import parse_line
from thalweg.cli.prompts import text_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thalweg import LLM, SamplingParams
    from thalweg.cli.batch_line import BatchLine
    from thalweg.cli.generate_options import PromptOptions
    from thalweg.text import ChatPrompt


@dataclass(frozen=True, slots=True)
class Job:
    label: Mapping[str, Any]
    """What tells a result's line: `line`, its number from 1, and its `id` if it has one."""
    text: str | None
    """The prompt; None when it was given as token ids."""
    prompt: ChatPrompt | Sequence[int]
    params: SamplingParams


class JobMaker:
    """Checks lines against one model, so that a bad one harms no other."""

    def __init__(self, llm: LLM, asked: PromptOptions, defaults: Mapping[str, Any]) -> None:
        """`defaults` are sampling fields for what lines leave open."""
        self._llm = llm
        self._asked = asked
        self._defaults = defaults

    def __call__(self, fields: Mapping[str, Any], label: Mapping[str, Any]) -> Job:
        """Raises `RequestError` for whatever would make the engine refuse it later."""
        from thalweg.engine.admission import admit

        line = parse_line(fields, self._defaults)
        text, prompt, token_ids = self._encode(line)
        admit("", token_ids, line.params, limits=self._llm.loaded.limits)
        return Job(label, text, prompt, line.params)

    def _encode(
        self, line: BatchLine
    ) -> tuple[str | None, ChatPrompt | Sequence[int], Sequence[int]]:
        llm = self._llm
        if line.messages is not None:
            chat = llm.render(line.messages, tools=line.tools)
            return chat.text, chat, chat.token_ids
        if not isinstance(line.prompt, str):
            assert line.prompt is not None
            return None, line.prompt, line.prompt
        prompt = text_prompt(llm, line.prompt, system=self._asked.system, raw=self._asked.raw)
        if isinstance(prompt, str):
            token_ids = llm.tokenizer.encode(prompt)
            return prompt, token_ids, token_ids
        return prompt.text, prompt, prompt.token_ids
