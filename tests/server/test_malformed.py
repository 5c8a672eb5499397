"""Every field of every body with every kind of wrong value: a 4xx that names it, and no harm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server_model import MODEL, Running
from thalweg.server.app import BODIES

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = {
    "a fraction": "3.5",
    "a negative number": "-7",
    "a boolean": "true",
    "a text": '"text"',
    "an object": '{"x": 1}',
    "a list of lists": "[[1]]",
    "a list of nothing": "[null]",
    "a huge integer": "9" * 400,
    "a huge number": "-1e400",
    "NaN": "NaN",
    "Infinity in a list": "[Infinity]",
    "half a surrogate pair": '{"x": "\\udc00"}',
    "much nesting": "[" * 200 + "]" * 200,
}
"""As JSON writes them, or as Python's reader also takes them."""
PLAIN: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 1,
    },
    "/v1/completions": {"model": MODEL, "prompt": "hi", "max_tokens": 1},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [5]},
}
TORN = [json.dumps(PLAIN["/v1/completions"]).encode()[:size] for size in range(48)]
NO_TEXT = [
    b'{"model": "%s", "prompt": "hi"}' % bytes(part)
    for part in ([0xFF], [0xC3, 0x28], [0xE2, 0x82], [0xF0, 0x9F, 0x98], [0xED, 0xA0, 0x80], [0xC0])
]


def bodies(path: str) -> Iterator[tuple[str, str, str]]:
    """(name of the field, what is wrong, the body)"""
    fields = BODIES[path][1].model_fields
    for name, field in [*fields.items(), ("no_such_field", None), ("Größe", None)]:
        known = name if field is None else field.alias or name
        plain = {key: value for key, value in PLAIN[path].items() if key != known}
        if name == "max_completion_tokens":
            del plain["max_tokens"]
        for what, text in VALUES.items():
            yield known, what, f'{json.dumps(plain)[:-1]}{", " if plain else ""}"{known}": {text}}}'


@pytest.mark.parametrize("path", PLAIN)
def test_a_wrong_value_of_any_field_is_refused_by_name(server: Running, path: str) -> None:
    num_refused = 0
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for name, what, body in bodies(path):
            answer = client.post(
                path, content=body.encode(), headers={"Content-Type": "application/json"}
            )
            if answer.status_code == 200:
                assert "NaN" not in body and "1e400" not in body and name != "no_such_field"
                continue
            assert answer.status_code in (400, 404), (what, body[:200], answer.text)
            error = answer.json()["error"]
            assert (error["param"] or "").startswith(name), (what, body[:200], error)
            assert name in error["message"] and len(error["message"]) < 500
            assert client.get("/health").is_success
            num_refused += 1
    assert num_refused > {"/tokenize": 50, "/detokenize": 35}.get(path, 300)


@pytest.mark.parametrize("path", PLAIN)
def test_what_is_no_json_is_refused(server: Running, path: str) -> None:
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for body in [*TORN, *NO_TEXT]:
            headers = {"Content-Type": "application/json"}
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code == 400, (body, answer.text)
            assert "body is not" in answer.json()["error"]["message"]
    assert server.get("/health").is_success
