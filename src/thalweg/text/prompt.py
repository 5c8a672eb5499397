"""A conversation as a prompt: its text, its ids, and where the model's turn begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.text.messages import plain_json, plain_tools
from thalweg.text.special_text import SpecialTextMarker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thalweg.text.chat_template import ChatTemplate
    from thalweg.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    text: str
    token_ids: list[int]
    snapshot_hint: int
    """How many ids stand before the generation prompt.

    The next turn's prompt begins with these too, while what follows often differs: an empty
    thinking block is written here and not in the history. Templates that rewrite earlier turns
    (the reasoning between tool calls goes once the user speaks again) shorten that on those turns.
    """


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> ChatPrompt:
    """Render and encode; `options` as for `ChatTemplate.render`.

    Special tokens that the template writes are tokens. In every string of the messages, tools
    and options they are text, so that nobody can forge a turn. Without such strings the ids are
    those of the rendered text as a whole.
    """
    given = {
        "messages": template.normalise(messages),
        "tools": plain_tools(tools),
        "options": plain_json(options, "options"),
    }
    marker = SpecialTextMarker(tokenizer, [given, template.source])
    marked = marker.mark(given)

    def render(add_generation_prompt: bool) -> str:
        return template.render(
            marked["messages"],
            tools=marked["tools"],
            add_generation_prompt=add_generation_prompt,
            **marked["options"],
        )

    rendered = render(True)
    token_ids = marker.encode(rendered)
    history = marker.encode(render(False))
    return ChatPrompt(marker.unmark(rendered), token_ids, _num_common(token_ids, history))


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    for i, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return i
    return min(len(first), len(second))
