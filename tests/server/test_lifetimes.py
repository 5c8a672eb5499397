"""Clients that leave, cancel, wait too long or come too many; a server that is told to end."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server_model import MODEL, Running, running
from thalweg import LLM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG = {"max_tokens": 400, "ignore_eos": True, "seed": 1}
MESSAGES = [{"role": "user", "content": "where?"}]


@pytest.fixture(autouse=True)
def slow_passes(served_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds at least for a long answer, so that nobody leaves too late."""
    sampler = served_llm.loaded.engine._parts.sampler
    draw = sampler._draw

    def slowly(*args: Any, **options: Any) -> Any:
        time.sleep(0.005)
        return draw(*args, **options)

    monkeypatch.setattr(sampler, "_draw", slowly)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def chunks(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def stream(server: Running, **options: Any) -> Any:
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, **LONG, **options}
    return httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=600)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_memory(server: Running, streamed: bool) -> None:
    if streamed:
        with stream(server) as response:
            next(chunks(response))
            until(lambda: server.service.engine.stats().num_running == 1)
    else:
        with pytest.raises(httpx.ReadTimeout):
            body = {"model": MODEL, "messages": MESSAGES, **LONG, "n": 4}
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.3)
    until(lambda: server.service.engine.num_requests == 0)
    assert server.service.recent[-1].outputs[0].finish_reason == "abort"
    until(lambda: server.service.engine.stats().num_running == 0)


def test_others_are_not_disturbed_by_those_who_leave(server: Running) -> None:
    alone = server.chat(seed=5, max_tokens=40).json()["choices"]
    results: list[Any] = []

    def stay() -> None:
        results.append(server.chat(seed=5, max_tokens=40).json()["choices"])

    def leave() -> None:
        with stream(server) as response:
            next(chunks(response))

    threads = [threading.Thread(target=stay if i % 3 else leave) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [alone] * 6
    until(lambda: server.service.engine.num_requests == 0)


def test_a_call_can_be_cancelled_by_its_id(server: Running) -> None:
    with stream(server) as response:
        pieces = chunks(response)
        first = next(pieces)
        assert response.headers["x-request-id"] == first["id"]
        cancelled = server.post(f"/v1/requests/{first['id']}/cancel")
        assert cancelled.json() == {"id": first["id"], "object": "request.cancelled"}
        reasons = [c["choices"][0]["finish_reason"] for c in pieces]
    assert reasons[-1] == "abort" and not any(reasons[:-1])
    assert server.post(f"/v1/requests/{first['id']}/cancel").status_code == 404


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_that_is_cancelled_shows_the_text_that_waited(
    server: Running, streamed: bool
) -> None:
    """Everything might begin the stop string, so nothing is shown before the end."""
    wanted = {"seed": 1, "ignore_eos": True, "enable_thinking": False, "max_tokens": 60}
    text = server.chat(**wanted).json()["choices"][0]["message"]["content"]
    body = {"stop": text + "!", "stream": streamed, **wanted}
    results: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: results.append(server.chat(**body)))
    asking.start()
    until(lambda: server.service.engine.stats().num_running == 1)
    (call_id,) = server.service.calls
    until(lambda: server.service.engine.progress(call_id) is None)
    assert server.post(f"/v1/requests/{call_id}/cancel").is_success
    asking.join()
    (response,) = results
    if streamed:
        choices = [chunk["choices"][0] for chunk in chunks(response)]
        got = "".join(choice["delta"].get("content", "") for choice in choices)
    else:
        choices = response.json()["choices"]
        got = choices[0]["message"]["content"]
    assert choices[-1]["finish_reason"] == "abort"
    assert got and text.startswith(got.rstrip("\ufffd"))


def test_an_answer_that_takes_too_long_ends_where_it_is(server: Running) -> None:
    (choice,) = server.chat(timeout=0.05, **LONG).json()["choices"]
    assert choice["finish_reason"] == "timeout"


def test_too_many_are_told_when_to_come_again(server: Running) -> None:
    """Sixty-four wait at most, and one call may ask for more than that."""
    response = server.post("/v1/completions", model=MODEL, prompt=["a"] * 200, max_tokens=2)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["code"] == "queue_full"
    until(lambda: server.service.engine.num_requests == 0)


def test_silence_is_filled_with_comments(serve: Callable[..., Any]) -> None:
    with (
        serve(keep_alive=0.0001) as server,
        stream(server, max_tokens=20) as response,
    ):
        assert ": keep-alive" in list(response.iter_lines())


def test_a_long_prompt_tells_how_far_it_is(
    tiny_llm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [[name + " the river runs deep" * 30] for name in "ab"]
    options: dict[str, Any] = {"max_model_len": 512, "max_num_batched_tokens": 64}
    with (
        LLM(tiny_llm_dir, kernels="cpu", **options) as llm,
        running(llm, keep_alive=0.01) as server,
    ):
        totals = [len(llm.tokenizer.encode(prompt)) for (prompt,) in prompts]
        runner = llm.loaded.engine._parts.runner
        forward = runner.forward

        def slowly(*args: Any) -> Any:
            time.sleep(0.2)
            return forward(*args)

        monkeypatch.setattr(runner, "forward", slowly)
        body = {"model": MODEL, "stream": True, "max_tokens": 2}
        plain = server.post("/v1/completions", prompt=prompts[0], **body).text
        asked = {"stream_options": {"include_progress": True, "include_usage": True}}
        chosen = server.post("/v1/completions", prompt=prompts[1], **body, **asked).text
    comments = [line for line in plain.splitlines() if line.startswith(": ")]
    assert comments[0] == f": 0 of {totals[0]} prompt tokens"
    assert len({*comments}) > 2
    events = [json.loads(line[6:]) for line in chosen.splitlines() if line.startswith("data: {")]
    reports = [each["prompt_progress"] for each in events if "prompt_progress" in each]
    assert {report["prompt_tokens"] for report in reports} == {totals[1]}
    counts = [report["computed_tokens"] for report in reports]
    assert counts == sorted(counts) and len({*counts}) > 2 and counts[-1] < totals[1]
    assert all(each["choices"] == [] for each in events if "prompt_progress" in each)


def test_a_request_that_fails_ends_alone(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A13: an error event, and the others go on."""
    sampler = server.loaded.engine._parts.sampler
    draw = sampler._draw

    def fail(logits: Any, rows: Any, **options: Any) -> Any:
        for row in rows:
            if row.request.seed == 13 and len(row.history) - len(row.request.prompt) == 3:
                raise ArithmeticError("injected")
        return draw(logits, rows, **options)

    expected = server.chat(seed=5, max_tokens=30).json()["choices"]
    monkeypatch.setattr(sampler, "_draw", fail)
    results: list[Any] = []
    other = threading.Thread(
        target=lambda: results.append(server.chat(seed=5, max_tokens=30).json()["choices"])
    )
    other.start()
    with stream(server, seed=13) as response:
        lines = list(response.iter_lines())
    other.join()
    assert results == [expected]
    assert lines[-2:] == ["data: [DONE]", ""]
    error = json.loads(lines[-4].removeprefix("data: "))["error"]
    assert error["type"] == "server_error" and "injected" in error["message"]
    whole = server.chat(seed=13, **{k: v for k, v in LONG.items() if k != "seed"})
    assert whole.status_code == 500


def test_every_request_is_logged_and_counted_once(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """M11."""
    caplog.set_level(logging.INFO, "thalweg.server")
    with serve(log_json=True) as server:
        before = dict(server.service.engine.stats().num_finished)
        server.chat(max_tokens=2, user="somebody", metadata={"run": "7"}, ignore_eos=True)
        server.chat(timeout=0.05, **LONG)
        with stream(server) as response:
            next(chunks(response))
        until(lambda: server.service.engine.num_requests == 0)
        server.chat(n=0)
        metrics = server.get("/metrics").text
        after = server.service.engine.stats().num_finished
    records = (r.getMessage() for r in caplog.records if r.name == "thalweg.server")
    lines = [json.loads(line) for line in records]
    assert [line["event"] for line in lines] == ["finished", "timeout", "aborted", "refused"]
    assert lines[0]["user"] == "somebody" and lines[0]["metadata"] == {"run": "7"}
    assert lines[0]["reason"] == "length" and lines[0]["tokens"] == 2
    gained = {reason: after[reason] - before[reason] for reason in after}
    assert gained == {"stop": 0, "length": 1, "abort": 1, "timeout": 1}
    assert 'thalweg_requests_refused_total{status="400"} 1.0' in metrics


def test_a_server_that_is_told_to_end_lets_answers_end(serve: Callable[..., Any]) -> None:
    with serve() as server, stream(server, max_tokens=60) as response:
        pieces = chunks(response)
        next(pieces)
        server.server.should_exit = True
        reasons = [c["choices"][0]["finish_reason"] for c in pieces]
        assert reasons[-1] == "length"


def test_after_the_drain_time_answers_are_cut(serve: Callable[..., Any]) -> None:
    with serve(drain_timeout=0.01) as server:
        engine = server.service.engine
        with stream(server, n=8) as response:
            pieces = chunks(response)
            next(pieces)
            server.server.should_exit = True
            until(lambda: engine.num_requests == 0)
    server.assert_empty()


def test_the_page_and_its_files_are_there(server: Running) -> None:
    page = server.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("main.js", "style.css", "api.js", "engine.js", "markdown.js"):
        file = server.get(f"/page/{name}")
        assert file.is_success and "//" not in file.text.replace("// ", "").replace("http://", "")
    state = server.get("/v1/engine").json()
    assert state["blocks"]["num_total"] > 0
    document = server.get("/openapi.json").json()
    assert "ChatRequest" in document["components"]["schemas"]
