"""The tasks. Nothing here needs torch, so that an evaluation through any engine can use them."""

from __future__ import annotations

from .arithmetic import ADDITION, ADDITION_THINKING, ARITHMETIC, ARITHMETIC_THINKING
from .calls import TOOL_CALL, TOOL_NONE, TOOL_RESULT
from .dialogue import DIALOGUE, PERSONAL
from .example import Example, Message, Split, Task, assistant, draw
from .objects import JSON_OBJECT
from .pairs import pair_recall
from .passages import passage_recall
from .sentences import READING
from .strings import REVERSE, UPPER, copy

__all__ = [
    "ADDITION",
    "ADDITION_THINKING",
    "ARITHMETIC",
    "ARITHMETIC_THINKING",
    "DIALOGUE",
    "JSON_OBJECT",
    "PERSONAL",
    "READING",
    "REVERSE",
    "TOOL_CALL",
    "TOOL_NONE",
    "TOOL_RESULT",
    "UPPER",
    "Example",
    "Message",
    "Split",
    "Task",
    "assistant",
    "copy",
    "draw",
    "pair_recall",
    "passage_recall",
]
