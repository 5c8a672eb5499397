"""Choose a tool, fill its arguments, and use its result."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .dialogue import DIALOGUE
from .example import Example, Message, Task, assistant, user
from .values import value
from .words import ADJECTIVES, CITIES, NAMES, NOUNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


@dataclass(frozen=True, slots=True)
class Use:
    """A request that a tool serves, with the arguments, the result and the final answer."""

    request: str
    arguments: dict[str, Any]
    result: dict[str, Any]
    answer: str


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: dict[str, str]  # name to JSON type
    use: Callable[[Random], Use]

    def schema(self) -> dict[str, Any]:
        """The tool in the form of the OpenAI chat API."""
        properties = {name: {"type": kind} for name, kind in self.parameters.items()}
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(self.parameters),
                },
            },
        }


def _weather(rng: Random) -> Use:
    city, degrees = rng.choice(CITIES), rng.randint(1, 39)
    sky = rng.choice(["sunny", "cloudy", "rainy", "windy", "foggy"])
    request = rng.choice(
        [
            "What is the weather in {}?",
            "How is the weather in {}?",
            "Is it warm in {}?",
            "Weather in {}?",
        ]
    )
    return Use(
        request.format(city),
        {"city": city},
        {"temperature": degrees, "sky": sky},
        f"It is {degrees} degrees and {sky} in {city}.",
    )


def _time(rng: Random) -> Use:
    city, clock = rng.choice(CITIES), f"{rng.randint(10, 23)}:{rng.randint(10, 59)}"
    request = rng.choice(["What time is it in {}?", "Tell me the time in {}.", "Time in {}?"])
    return Use(request.format(city), {"city": city}, {"time": clock}, f"It is {clock} in {city}.")


def _multiply(rng: Random) -> Use:
    a, b = rng.randint(2, 99), rng.randint(2, 99)
    request = rng.choice(["What is {} times {}?", "Multiply {} by {}.", "{} * {}"])
    return Use(
        request.format(a, b), {"a": a, "b": b}, {"result": a * b}, f"{a} times {b} is {a * b}."
    )


def _timer(rng: Random) -> Use:
    minutes = rng.randint(2, 90)
    request = rng.choice(
        ["Set a timer for {} minutes.", "Wake me in {} minutes.", "Start a timer of {} minutes."]
    )
    return Use(
        request.format(minutes),
        {"minutes": minutes},
        {"status": "ok"},
        f"The timer is set for {minutes} minutes.",
    )


def _message(rng: Random) -> Use:
    name, text = rng.choice(NAMES), f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    request = rng.choice(['Send "{1}" to {0}.', 'Tell {0}: "{1}"', 'Write a message to {0}: "{1}"'])
    return Use(
        request.format(name, text),
        {"to": name, "text": text},
        {"status": "sent"},
        f"I sent your message to {name}.",
    )


def _search(rng: Random) -> Use:
    topic = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    count = rng.randint(2, 99)
    request = rng.choice(["Search for {}.", "Look up {}.", "Find pages about {}."])
    return Use(
        request.format(topic),
        {"query": topic},
        {"pages": count},
        f"I found {count} pages about {topic}.",
    )


_KNOWN = (
    Tool("get_weather", "Current weather of a city", {"city": "string"}, _weather),
    Tool("get_time", "Current time in a city", {"city": "string"}, _time),
    Tool("multiply", "Multiply two numbers", {"a": "integer", "b": "integer"}, _multiply),
    Tool("set_timer", "Set a timer", {"minutes": "integer"}, _timer),
    Tool("send_message", "Send a message", {"to": "string", "text": "string"}, _message),
    Tool("search", "Search the web", {"query": "string"}, _search),
)


def _invented(rng: Random) -> Tool:
    """A tool with a made-up name, so that names and parameters are read, not remembered."""
    noun, field = rng.sample(NOUNS, 2)
    verb = rng.choice(["get", "find", "read", "fetch", "check"])
    parameter = rng.choice(["name", "owner", "person", "id", "key"])

    def use(rng: Random) -> Use:
        name, found = rng.choice(NAMES), value(rng)
        request = rng.choice(
            [
                "{verb} the {noun} of {name}.",
                "What is the {noun} of {name}?",
                "Tell me the {noun} of {name}.",
            ]
        ).format(verb=verb.capitalize(), noun=noun, name=name)
        answer = f"The {noun} of {name} is {found}."
        return Use(request, {parameter: name}, {field: found}, answer)

    return Tool(
        f"{verb}_{noun}", f"{verb.capitalize()} the {noun} of a person", {parameter: "string"}, use
    )


def _toolbox(rng: Random) -> list[Tool]:
    tools = rng.sample(_KNOWN, rng.randint(0, 3))
    while len(tools) < rng.randint(1, 3):
        tools.append(_invented(rng))
    rng.shuffle(tools)
    return list({tool.name: tool for tool in tools}.values())


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """A call as the template writes it."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def _called(name: str, use: Use) -> list[Message]:
    """The request, the call and the tool's response."""
    function = {"name": name, "arguments": use.arguments}
    return [
        user(use.request),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": function}],
        },
        {"role": "tool", "content": json.dumps(use.result)},
    ]


def _past_turns(rng: Random, tools: list[Tool], most: int) -> list[Message]:
    """Up to `most` finished calls, then a place for one more."""
    messages: list[Message] = []
    for _ in range(rng.randint(0, most)):
        tool = rng.choice(tools)
        use = tool.use(rng)
        messages += [*_called(tool.name, use), assistant(use.answer)]
    return messages


def _generate_call(rng: Random) -> Example:
    tools = _toolbox(rng)
    messages = _past_turns(rng, tools, 2)
    tool = rng.choice(tools)
    use = tool.use(rng)
    messages.append(user(use.request))
    return Example(
        messages,
        call_text(tool.name, use.arguments),
        key=f"{tool.name} {use.request}",
        tools=[t.schema() for t in tools],
    )


def _generate_result(rng: Random) -> Example:
    tools = _toolbox(rng)
    messages = _past_turns(rng, tools, 2)
    tool = rng.choice(tools)
    use = tool.use(rng)
    messages += _called(tool.name, use)
    return Example(
        messages,
        use.answer,
        key=f"{tool.name} {use.request} {use.result}",
        tools=[t.schema() for t in tools],
    )


def _parse(text: str) -> Any:
    body = text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>")
    try:
        return json.loads(body)
    except ValueError:
        return None


def _check_call(example: Example, text: str) -> bool:
    call = _parse(text)
    return call is not None and bool(call == _parse(example.answer))


def _generate_none(rng: Random) -> Example:
    """Tools are there, and none of them is asked for."""
    tools = _toolbox(rng)
    plain = DIALOGUE.generate(rng)
    messages = [*_past_turns(rng, tools, 1), *plain.messages]
    return replace(plain, messages=messages, tools=[t.schema() for t in tools])


def _check_none(example: Example, text: str) -> bool:
    return "<tool_call>" not in text


TOOL_CALL = Task("tool_call", _generate_call, _check_call)
TOOL_RESULT = Task("tool_result", _generate_result)
TOOL_NONE = Task("tool_not_needed", _generate_none, _check_none)
