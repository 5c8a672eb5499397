"""The chat template in Python, in pieces that say which text the model is trained to write.

`tests` compare it with `chat_template.jinja`, which is what ships.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tasks import Example, Message

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
)
END_OF_TEXT, IM_START, IM_END = CONTROL_TOKENS = SPECIAL_TOKENS[:3]


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    written: bool  # by the model


def _call(message: Message) -> str:
    calls = [call["function"] for call in message.get("tool_calls", [])]
    texts = [
        f'<tool_call>\n{{"name": "{call["name"]}", "arguments": '
        f"{json.dumps(call['arguments'], ensure_ascii=False)}}}\n</tool_call>"
        for call in calls
    ]
    return "\n".join(texts)


def _system(tools: list[dict[str, object]]) -> str:
    lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        f"{IM_START}system\n# Tools\n\nYou may call these functions:\n<tools>{lines}\n</tools>\n\n"
        "To call one, answer with its name and arguments:\n<tool_call>\n"
        f'{{"name": <name>, "arguments": <object>}}\n</tool_call>{IM_END}\n'
    )


def pieces(example: Example) -> list[Piece]:
    """The conversation and its answer; the last piece is the answer with its end token."""
    out = [Piece(_system(example.tools), False)] if example.tools else []
    for message in example.messages:
        content = message["content"]
        if message["role"] == "assistant":
            out.append(Piece(f"{IM_START}assistant\n", False))
            out.append(Piece(content + _call(message) + IM_END, True))
            out.append(Piece("\n", False))
        elif message["role"] == "tool":
            response = f"\n<tool_response>\n{content}\n</tool_response>"
            out.append(Piece(f"{IM_START}user{response}{IM_END}\n", False))
        else:
            out.append(Piece(f"{IM_START}{message['role']}\n{content}{IM_END}\n", False))
    out.append(
        Piece(f"{IM_START}assistant\n{'<think>' + chr(10) if example.thinking else ''}", False)
    )
    out.append(Piece(example.answer + IM_END, True))
    return out
