"""The body of `/v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from thalweg.server.schemas.fields import GenerationFields, Role, Strict, only

ONLY_TEXT = "text is all there is"


class TextPart(Strict):
    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: Annotated[
        dict[str, Any] | None, only(why="the cache finds what is alike itself")
    ] = None


class CalledFunction(Strict):
    name: str
    arguments: str | dict[str, Any] | None = None
    """JSON text, or what it says."""


class ToolCall(Strict):
    type: Literal["function"] = "function"
    function: CalledFunction
    id: str | None = None
    index: int | None = None


class Message(Strict):
    role: Role
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Annotated[str | None, only(why="models here do not write refusals apart")] = None
    audio: Annotated[dict[str, Any] | None, only(why=ONLY_TEXT)] = None
    function_call: Annotated[dict[str, Any] | None, only(why="tool_calls is its name now")] = None
    annotations: Annotated[list[Any] | None, only([], why=ONLY_TEXT)] = None


class Function(Strict):
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    name: str


class NamedTool(Strict):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


class AllowedToolChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class JsonSchema(Strict):
    name: str
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """`regex` and `grammar` (Lark, as llguidance reads it) are extensions."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchema | None = None
    regex: str | None = None
    grammar: str | None = None


class ChatRequest(GenerationFields):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    max_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=100)
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | AllowedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    enable_thinking: bool | None = None
    """Through the template; null leaves it to the template."""
    reasoning_budget: int | None = Field(None, ge=0)
    """Tokens of reasoning after which its end is forced."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables of the template, such as `preserve_thinking`."""
    reasoning_effort: Annotated[
        str | None, only("none", "medium", why="reasoning has no degrees, only a budget")
    ] = None
    """`none` is `enable_thinking: false`."""
    store: Annotated[bool | None, only(False, why="nothing is stored")] = None
    service_tier: Annotated[str | None, only("auto", "default", why="there is one tier")] = None
    modalities: Annotated[list[str] | None, only(["text"], why=ONLY_TEXT)] = None
    verbosity: Annotated[str | None, only("medium", why="it cannot be turned")] = None
    prompt_cache_retention: Annotated[
        str | None, only("in_memory", "in-memory", why="the cache is in memory")
    ] = None
    prompt_cache_options: Annotated[
        dict[str, Any] | None,
        only({"mode": "implicit"}, why="the cache keeps what it has room for"),
    ] = None
    moderation: Annotated[dict[str, Any] | None, only(why="nothing is moderated")] = None
    audio: Annotated[dict[str, Any] | None, only(why=ONLY_TEXT)] = None
    prediction: Annotated[dict[str, Any] | None, only(why="drafts are the engine's own")] = None
    web_search_options: Annotated[dict[str, Any] | None, only(why="there is no web search")] = None
    functions: Annotated[list[Any] | None, only(why="tools is its name now")] = None
    function_call: Annotated[Any | None, only(why="tool_choice is its name now")] = None
