from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from thalweg.errors import CheckpointError, RequestError
from thalweg.text import ChatTemplate

if TYPE_CHECKING:
    from pathlib import Path

USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "be brief"}


def render(source: str, **options: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render([USER], **options)


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s>hi"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{{ {'b': '<é>', 'a': [1, true, none]} | tojson }}", '{"b": "<é>", "a": [1, true, null]}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% generation %}{{ 'x' }}{% set y = 1 %}{% endgeneration %}{{ y }}", "x"),
        ("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "TrueTrueTrue"),
        ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
    ],
)
def test_what_templates_count_on(source: str, want: str) -> None:
    assert render(source) == want


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("{% if %}", CheckpointError, "does not compile: line 1"),
        ("{{ 1 | no_such_filter }}", CheckpointError, "does not compile: line 1: No filter"),
        ("{{ ''.__class__.__mro__ }}", CheckpointError, "is not safe"),
        ("{{ messages.append(1) }}", CheckpointError, "is not safe"),
        ("{{ raise_exception('say\nno') }}", RequestError, "^say no$"),
        ("{{ nothing.at.all }}", RequestError, "needs more: 'nothing' is undefined"),
        ("{{ 'a' + none }}", RequestError, "cannot render these messages"),
        ("{{ 1 / 0 }}", RequestError, "cannot render these messages: division"),
    ],
)
def test_errors_are_one_line_and_of_the_right_kind(
    source: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        render(source)
    assert "\n" not in str(caught.value)


def test_a_second_or_late_system_message_is_refused_in_the_templates_words(
    template: ChatTemplate,
) -> None:
    """T3"""
    for messages in ([SYSTEM, SYSTEM, USER], [USER, SYSTEM], [SYSTEM, USER, SYSTEM]):
        with pytest.raises(RequestError, match=r"^System message must be at the beginning\.$"):
            template.render(messages)


def test_developer_is_the_system_role(template: ChatTemplate) -> None:
    """T3"""
    developer = {"role": "developer", "content": "be brief"}
    assert template.render([developer, USER]) == template.render([SYSTEM, USER])


def conversation(arguments: Any, content: Any = None) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": arguments}
    calls = [{"id": "call00001", "type": "function", "function": function}]
    return [
        USER,
        {"role": "assistant", "content": content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call00001", "content": "12 °C"},
    ]


ARGUMENTS = {"city": "Köln", "days": [1, 2], "units": {"temperature": "C"}, "late": None}
BY_TEXT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content + '' }}"
    "{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}"
    "{% endfor %}"
)
BY_NULL = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is none %}"
    "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)


@pytest.mark.parametrize("source", [None, BY_TEXT, BY_NULL])
def test_arguments_as_text_or_object_render_the_same(
    template: ChatTemplate, source: str | None
) -> None:
    if source is not None:
        template = ChatTemplate(source, {})
    texts = {
        template.render(conversation(arguments))
        for arguments in (ARGUMENTS, json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, indent=1))
    }
    assert len(texts) == 1
    text = texts.pop()
    assert "Köln" in text and "12 °C" in text
    assert "None" not in text


def test_templates_get_arguments_and_null_content_in_their_own_form() -> None:
    assert ChatTemplate(BY_TEXT, {}).render(conversation({"a": 1})) == (
        '[user]hi[assistant]weather{"a": 1}[tool]12 °C'
    )
    assert ChatTemplate(BY_NULL, {}).render(conversation('{"a":1}')) == (
        '[user]hi[assistant]{"a": 1}[tool]12 °C'
    )


def test_tools_and_options_are_checked(template: ChatTemplate) -> None:
    with pytest.raises(RequestError, match=r"tools\[0\] = 'weather' is not allowed: an object"):
        template.render([USER], tools=["weather"])  # type: ignore[list-item]
    with pytest.raises(RequestError, match=r"options\.key is a object"):
        template.render([USER], key=object())
    assert template.render([USER], tools=[]) == template.render([USER])


def test_where_the_template_is_found(tmp_path: Path) -> None:
    assert ChatTemplate.from_directory(tmp_path, {}) is None
    config = tmp_path / "tokenizer_config.json"
    for value in (
        "old",
        [{"name": "rag", "template": "-"}, {"name": "default", "template": "old"}],
    ):
        config.write_text(json.dumps({"chat_template": value}))
        found = ChatTemplate.from_directory(tmp_path, {})
        assert found is not None and found.render([USER]) == "old"
    (tmp_path / "chat_template.jinja").write_text("new")
    found = ChatTemplate.from_directory(tmp_path, {})
    assert found is not None and found.render([USER]) == "new"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        ChatTemplate.from_directory(tmp_path, {})
