"""What is wrong is answered with a 4xx of OpenAI's shape that names it, and harms nobody."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server_model import MODEL, Running

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = {"Content-Type": "application/json"}
MESSAGES = [{"role": "user", "content": "hi"}]


def error(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    (body,) = response.json().values()
    assert body.keys() == {"message", "type", "param", "code"}
    assert body["message"]
    return dict(body)


CHAT: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": []}),
    ("messages", {"messages": None}),
    ("messages", {"messages": "hi"}),
    ("messages[0]", {"messages": ["hi"]}),
    ("messages[0].role", {"messages": [{"content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": "narrator", "content": "hi"}]}),
    ("messages[0].colour", {"messages": [{"role": "user", "content": "hi", "colour": 1}]}),
    ("messages[0]", {"messages": [{"role": "user"}]}),
    (
        "messages[0].content[0]",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ),
    ("messages[0].audio", {"messages": [{"role": "user", "content": "", "audio": {"id": "x"}}]}),
    ("temperature", {"temperature": "hot"}),
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": True}),
    ("temperature", {"temperature": 1e400}),
    ("top_p", {"top_p": 0}),
    ("n", {"n": 0}),
    ("n", {"n": 10**30}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("max_completion_tokens", {"max_tokens": 3, "max_completion_tokens": 4}),
    ("stop", {"stop": [""]}),
    ("stop", {"stop": 7}),
    ("seed", {"seed": -1}),
    ("logit_bias", {"logit_bias": {"river": 1}}),
    ("logit_bias", {"logit_bias": {"9999999": 1}}),
    ("top_logprobs", {"top_logprobs": 3}),
    ("presence_penalty", {"presence_penalty": 3}),
    ("stream_options.include_obfuscation", {"stream_options": {"include_obfuscation": True}}),
    ("stream_options.colour", {"stream_options": {"colour": True}}),
    ("store", {"store": True}),
    ("service_tier", {"service_tier": "flex"}),
    ("modalities", {"modalities": ["text", "audio"]}),
    ("audio", {"audio": {"voice": "alloy", "format": "wav"}}),
    ("prediction", {"prediction": {"type": "content", "content": "x"}}),
    ("web_search_options", {"web_search_options": {}}),
    ("functions", {"functions": [{"name": "f"}]}),
    ("function_call", {"function_call": "auto"}),
    ("verbosity", {"verbosity": "high"}),
    ("reasoning_effort", {"reasoning_effort": "high"}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"no_such": 1}}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"messages": []}}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tools[0].type", {"tools": [{"type": "custom"}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    ("no_such_field", {"no_such_field": 1}),
    ("metadata.a", {"metadata": {"a": 1}}),
    ("priority", {"priority": 10**9}),
    ("priority", {"priority": -1}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("timeout", {"timeout": 0}),
]
COMPLETIONS: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {"prompt": ""}),
    ("prompt", {"prompt": []}),
    ("prompt", {"prompt": None}),
    ("prompt", {}),
    ("prompt[1]", {"prompt": [1, "a"]}),
    ("prompt", {"prompt": [99999]}),
    ("prompt", {"prompt": [-1]}),
    ("prompt", {"prompt": "river " * 2000}),
    ("suffix", {"prompt": "a", "suffix": "b"}),
    ("best_of", {"prompt": "a", "best_of": 3}),
    ("max_tokens", {"prompt": "a", "max_tokens": 0}),
    ("logprobs", {"prompt": "a", "logprobs": 500}),
    ("stream", {"prompt": "a", "echo": True, "logprobs": 1, "stream": True}),
]


@pytest.mark.parametrize(("param", "body"), CHAT, ids=lambda value: str(value)[:60])
def test_a_wrong_field_of_a_chat_is_named(
    server: Running, param: str, body: dict[str, Any]
) -> None:
    given = {"model": MODEL, "messages": MESSAGES, **body}
    text = json.dumps(given).replace("Infinity", "1e400")
    got = error(httpx.post(f"{server.url}/v1/chat/completions", content=text, headers=JSON))
    assert got["param"] is not None and got["param"].startswith(param.partition("[")[0])
    assert param.rpartition(".")[2].partition("[")[0] in got["message"]


@pytest.mark.parametrize(("param", "body"), COMPLETIONS, ids=lambda value: str(value)[:60])
def test_a_wrong_field_of_a_completion_is_named(
    server: Running, param: str, body: dict[str, Any]
) -> None:
    got = error(server.post("/v1/completions", model=MODEL, **body))
    assert got["param"] == param


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b'{"model": "\xc3\x28"}',
        b'{"model": "tiny", "messages": [], "temperature": NaN}',
        b'{"model": "tiny", "temperature": -Infinity}',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b'{"a": ' * 200 + b"1" + b"}" * 200 + b"}",
        b'{"model": "tiny", "n": ' + b"9" * 5000 + b"}",
    ],
    ids=range(11),
)
def test_a_body_that_is_no_json_object_is_refused(server: Running, content: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        error(httpx.post(server.url + path, content=content, headers=JSON))
    assert server.get("/health").status_code == 200


def test_lone_surrogates_are_refused(server: Running) -> None:
    content = b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}'
    error(httpx.post(f"{server.url}/v1/chat/completions", content=content, headers=JSON))


def test_other_content_types_are_refused(server: Running) -> None:
    got = httpx.post(f"{server.url}/v1/completions", content=b"{}")
    error(got, 415)


def test_unknown_models_and_paths_are_named(server: Running) -> None:
    assert error(server.chat(model="gpt"), 404)["code"] == "model_not_found"
    assert "/v1/nothing" in error(server.get("/v1/nothing"), 404)["message"]
    error(server.get("/v1/chat/completions"), 405)
    error(server.post("/v1/requests/none/cancel"), 404)


def test_a_second_system_message_is_the_templates_to_refuse(server: Running) -> None:
    """T3."""
    system = {"role": "system", "content": "be brief"}
    got = error(server.chat(messages=[*MESSAGES, system]))
    assert got["message"] == "System message must be at the beginning."
    assert server.chat(
        messages=[{**system, "role": "developer"}, *MESSAGES], max_tokens=1
    ).is_success


def test_a_prompt_that_is_longer_than_the_context_is_refused(server: Running) -> None:
    got = error(server.chat(messages=[{"role": "user", "content": "river " * 2000}]))
    assert "512" in got["message"]


def test_what_asks_for_what_is_done_anyway_is_accepted(server: Running) -> None:
    accepted = {
        "store": False,
        "service_tier": "auto",
        "modalities": ["text"],
        "verbosity": "medium",
        "reasoning_effort": "medium",
        "user": "somebody",
        "metadata": {"run": "7"},
        "prompt_cache_key": "key",
        "safety_identifier": "id",
        "audio": None,
        "tools": None,
        "stop": None,
        "max_tokens": 1,
    }
    assert server.chat(**accepted).status_code == 200


def test_more_tokens_than_the_context_holds_end_with_length(server: Running) -> None:
    """A9."""
    got = server.chat(max_tokens=10**9, logit_bias={"322": -100}, seed=1, ignore_eos=True)
    assert got.json()["choices"][0]["finish_reason"] == "length"
    assert got.json()["usage"]["total_tokens"] == 512


def test_a_large_body_is_refused_unread(serve: Callable[..., Any]) -> None:
    with serve(max_body_size=1000) as server:
        error(server.post("/v1/completions", model=MODEL, prompt="a" * 1000), 413)
        chunks = (b"x" * 100 for _ in range(50))
        error(httpx.post(f"{server.url}/tokenize", content=chunks, headers=JSON), 413)


def test_only_those_with_a_key_may_ask(serve: Callable[..., Any]) -> None:
    with serve(api_keys=("first", "second")) as server:
        url = f"{server.url}/v1/models"
        error(httpx.get(url), 401)
        for token in ("Bearer third", "Basic first", "Bearer", "first"):
            error(httpx.get(url, headers={"Authorization": token}), 401)
        for token in ("Bearer first", "bearer second"):
            assert httpx.get(url, headers={"Authorization": token}).is_success
        error(httpx.get(f"{server.url}/metrics"), 401)
        assert httpx.get(f"{server.url}/health").is_success


def test_a_page_with_a_name_of_its_own_for_this_machine_may_not_ask(
    serve: Callable[..., Any],
) -> None:
    def asked_as(server: Running, host: str) -> httpx.Response:
        return httpx.get(f"{server.url}/v1/models", headers={"Host": host})

    with serve() as server:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "127.9.9.9", "[::1]:8000"):
            assert asked_as(server, host).is_success
        for host in ("evil.example", "localhost.evil.example:8000", "10.0.0.1", "[::2]", "", "["):
            got = error(asked_as(server, host), 403)
            assert got["code"] == "unknown_host" and "--allowed-host" in got["message"]
    with serve(allowed_hosts=("box.lan",)) as server:
        assert asked_as(server, "Box.lan:80").is_success
        error(asked_as(server, "evil.example"), 403)
    with serve(host="0.0.0.0") as server:
        assert asked_as(server, "any.example").is_success


def test_urgency_is_the_operators_to_give(serve: Callable[..., Any]) -> None:
    with serve(min_priority=-5) as server:
        assert server.chat(priority=-5, max_tokens=1).is_success
        assert error(server.chat(priority=-6))["param"] == "priority"


def test_other_origins_may_not_ask_unless_told(serve: Callable[..., Any]) -> None:
    headers = {"Origin": "http://elsewhere", "Access-Control-Request-Method": "POST"}
    with serve() as server:
        preflight = httpx.options(f"{server.url}/v1/completions", headers=headers)
        assert "access-control-allow-origin" not in preflight.headers
    with serve(cors_origins=("http://elsewhere",)) as other:
        preflight = httpx.options(f"{other.url}/v1/completions", headers=headers)
        assert preflight.headers["access-control-allow-origin"] == "http://elsewhere"
