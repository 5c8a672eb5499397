"""What a chat template can do, by the variables it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from jinja2 import meta

from thalweg.text.template_environment import template_environment

if TYPE_CHECKING:
    from thalweg.text.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class TemplateFeatures:
    tools: bool
    """It lists tools for the model."""
    enable_thinking: bool
    """Thinking can be turned off, or on."""
    preserve_thinking: bool
    """The reasoning of earlier turns can be kept."""
    variables: frozenset[str]
    """All that it looks at."""

    @classmethod
    def of(cls, template: ChatTemplate) -> Self:
        variables = meta.find_undeclared_variables(template_environment().parse(template.source))
        return cls(
            tools="tools" in variables,
            enable_thinking="enable_thinking" in variables,
            preserve_thinking="preserve_thinking" in variables,
            variables=frozenset(variables),
        )
