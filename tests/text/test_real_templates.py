"""The templates of Qwen2.5, Qwen3, Qwen3.5 and SmolLM2 over 60 conversations, as transformers
renders them. They are read where the machine has them (see `templates`)."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import jinja2
import pytest

from gguf_files import llama_cpp_source
from thalweg.errors import RequestError
from thalweg.text import ChatTemplate
from thalweg.text.template_features import TemplateFeatures

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = {
    "Qwen2.5": "Qwen-Qwen2.5-7B-Instruct.jinja",
    "Qwen3": "Qwen-Qwen3-0.6B.jinja",
    "Qwen3.5": "Qwen3.5-4B.jinja",
}
"""In models/templates of llama.cpp's source."""
NAMES = ("Qwen2.5", "Qwen3", "Qwen3.5", "SmolLM2")

Messages = list[dict[str, Any]]


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def calls(*functions: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(functions)
    ]


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": "c0"}


PARIS = calls(("get_weather", {"city": "Paris", "days": 2}))
TWO = calls(
    ("get_weather", {"city": "Köln", "where": {"lat": 50.9, "tags": ["a", None, True]}}),
    ("search", {"query": 'say "hi"\n<b>&'}),
)
SHAPES: dict[str, Messages] = {
    "one question": [user("Hi")],
    "with a system message": [system("Be brief."), user("Hi")],
    "empty texts": [system(""), user("")],
    "three turns": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "ends with an answer": [user("a"), assistant("b")],
    "spaces and lines": [user("  a\n\n"), assistant("\n b \n"), user("\t")],
    "other scripts": [system("日本語"), user("Größe 🙂 наука"), assistant("नदी"), user("ok")],
    "text parts": [user([{"type": "text", "text": "part one, "}, {"type": "text", "text": "two"}])],
    "reasoning": [user("a"), assistant("b", reasoning_content="because\nit is"), user("c")],
    "reasoning in the text": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c")],
    "a call": [user("Weather?"), assistant("", tool_calls=PARIS), result('{"t": 4}')],
    "a call and an answer": [
        system("Use tools."),
        user("Weather?"),
        assistant("I look.", tool_calls=PARIS, reasoning_content="I need it."),
        result("4 degrees"),
        assistant("It is 4.", reasoning_content="Now I know."),
        user("And tomorrow?"),
    ],
    "two calls": [
        user("Both"),
        assistant("", tool_calls=TWO),
        result("one"),
        result("two"),
        assistant("done"),
        user("more"),
        assistant("", tool_calls=calls(("now", {}))),
        result("12:00"),
    ],
    "no question": [system("Only rules.")],
    "a late system message": [user("a"), assistant("b"), system("Change."), user("c")],
}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Größe & <Name>"}},
    "required": ["city"],
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"The {name}", "parameters": PARAMETERS},
    }
    for name in ("get_weather", "search")
]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tools": {"tools": TOOLS},
    "no thinking": {"enable_thinking": False},
    "all": {"tools": TOOLS, "enable_thinking": True, "preserve_thinking": True},
}
CONVERSATIONS = [(shape, setting) for shape in SHAPES for setting in SETTINGS]


@pytest.fixture(scope="module", params=NAMES)
def source(request: pytest.FixtureRequest) -> str:
    if request.param == "SmolLM2":
        metadata: Mapping[str, Any] = request.getfixturevalue("smollm2_metadata")
        return str(metadata["tokenizer.chat_template"])
    file = llama_cpp_source() / "models" / "templates" / FILES[request.param]
    return file.read_text(encoding="utf-8")


def theirs(source: str, messages: Messages, settings: Mapping[str, Any]) -> str | None:
    """None: the template refuses the conversation."""
    from transformers.utils.chat_template_utils import render_jinja_template

    options = {"tools": None, **settings}
    render: Any = render_jinja_template
    try:
        (text,), _ = render([messages], chat_template=source, add_generation_prompt=True, **options)
    except jinja2.TemplateError:
        return None
    return str(text)


def as_text(messages: Messages) -> Messages:
    """With arguments as JSON text, which is how OpenAI's API has them."""
    messages = deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return messages


def test_there_are_sixty() -> None:
    assert len(CONVERSATIONS) == 60


def test_every_conversation_renders_as_in_transformers(source: str) -> None:
    template = ChatTemplate(source, {})
    num_refused = 0
    for shape, setting in CONVERSATIONS:
        messages, settings = SHAPES[shape], SETTINGS[setting]
        plain = messages
        if shape == "text parts":  # Most templates know no parts, so they are joined first.
            plain = [user("part one, two")]
        want = theirs(source, plain, settings)
        for given in (messages, as_text(messages)):
            if want is None:
                num_refused += 1
                with pytest.raises(RequestError):
                    template.render(given, **settings)
            else:
                assert template.render(given, **settings) == want, (shape, setting)
    assert num_refused <= 2 * 2 * len(SETTINGS)


def test_features() -> None:
    folder = llama_cpp_source() / "models" / "templates"
    found = {
        name: TemplateFeatures.of(ChatTemplate((folder / file).read_text(encoding="utf-8"), {}))
        for name, file in FILES.items()
    }
    assert all(each.tools for each in found.values())
    assert [n for n, each in found.items() if each.enable_thinking] == ["Qwen3", "Qwen3.5"]
    assert not any(each.preserve_thinking for each in found.values())
    keeps = ChatTemplate("{% if preserve_thinking %}{{ messages[0].content }}{% endif %}", {})
    variables = frozenset({"messages", "preserve_thinking"})
    assert TemplateFeatures.of(keeps) == TemplateFeatures(False, False, True, variables)
