"""A model's chat template: messages in, the text the model was trained on out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jinja2
from jinja2.exceptions import SecurityError

from thalweg.errors import CheckpointError, RequestError
from thalweg.text.messages import MessageForm, normalise_messages, plain_json, plain_tools
from thalweg.text.special_tokens import read_json
from thalweg.text.template_environment import template_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What Python raises when a template treats a value as something it is not.
_MISUSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_CALL = {
    "id": "probe0001",
    "type": "function",
    "function": {"name": "probe", "arguments": {"key": "probed"}},
}
_PROBE = (
    {"role": "user", "content": "question"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "content": "result", "name": "probe", "tool_call_id": "probe0001"},
    {"role": "assistant", "content": "answer"},
    {"role": "user", "content": "another"},
)


class ChatTemplate:
    """A compiled template. What it renders depends on nothing but its arguments (and the date,
    for templates that print it)."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        """`names` are its variables for special tokens, such as `bos_token`.

        Raises `CheckpointError` if the source does not compile.
        """
        try:
            self._template = template_environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            message = f"the chat template does not compile: line {error.lineno}: {error.message}"
            raise CheckpointError(_one_line(message)) from error
        self.source = source
        self._names = dict(names)
        self._form = self._find_form()

    @classmethod
    def from_directory(cls, path: str | Path, names: Mapping[str, str]) -> Self | None:
        """From `chat_template.jinja`, else `tokenizer_config.json`; None if there is neither."""
        file = Path(path) / "chat_template.jinja"
        try:
            source: Any = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            source = read_json(file.with_name("tokenizer_config.json")).get("chat_template")
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
        if isinstance(source, list):  # several named templates: an old form
            named = {each.get("name"): each.get("template") for each in source}
            source = named.get("default")
        if source is not None and not isinstance(source, str):
            raise CheckpointError(f"the chat template in {path} is not a text")
        return None if source is None else cls(source, names)

    def normalise(self, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The messages as the template gets them; `render` does this by itself."""
        return normalise_messages(messages, self._form)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """The conversation as text.

        `options` are the template's own variables: `enable_thinking`, and `preserve_thinking` for
        templates that can keep the reasoning of earlier turns, are the usual ones. Messages that
        the template refuses raise `RequestError` with its words.
        """
        variables = {
            "documents": None,
            **plain_json(options, "options"),
            "messages": self.normalise(messages),
            "tools": plain_tools(tools) or None,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._render(variables)

    def _render(self, variables: Mapping[str, Any]) -> str:
        try:
            return self._template.render({**self._names, **variables})
        except SecurityError as error:
            raise CheckpointError(f"the chat template is not safe: {_one_line(error)}") from error
        except jinja2.UndefinedError as error:
            raise RequestError(f"the chat template needs more: {_one_line(error)}") from error
        except jinja2.TemplateError as error:
            raise RequestError(_one_line(error)) from error
        except _MISUSE as error:
            message = f"the chat template cannot render these messages: {_one_line(error)}"
            raise RequestError(message) from error

    def _find_form(self) -> MessageForm:
        """The first form in which a tool call comes out whole, in this turn and an earlier one.

        Some templates stop at a null content or print 'None', others know a tool call by it; a few
        join the arguments to text, most print them as JSON.
        """
        forms = [MessageForm(null, objects) for objects in (True, False) for null in (None, "")]
        for form in forms:
            try:
                texts = [self._render(_probe(form, num_messages)) for num_messages in (3, 5)]
            except (CheckpointError, RequestError):
                continue
            said = "None" in self.source
            if all("probed" in text and (said or "None" not in text) for text in texts):
                return form
        return MessageForm()


def _probe(form: MessageForm, num_messages: int) -> dict[str, Any]:
    return {"messages": normalise_messages(_PROBE[:num_messages], form), "tools": None}


def _one_line(value: object) -> str:
    return " ".join(str(value).split())
