"""`thalweg generate --input`."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from thalweg import LLM, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., subprocess.CompletedProcess[str]]
    Start = Callable[..., subprocess.Popen[bytes]]

FLAGS = ("--seed", 3, "--max-tokens", 6, "--ignore-eos")
PARAMS = {"seed": 3, "temperature": 0.7, "max_tokens": 6, "ignore_eos": True}


def write(path: Path, lines: list[Any]) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def read(text: str) -> dict[int, dict[str, Any]]:
    results = [json.loads(line) for line in text.splitlines()]
    by_line = {result["line"]: result for result in results}
    assert len(by_line) == len(results), "a line was answered twice"
    return by_line


@pytest.fixture(scope="module")
def llm(tiny_llm_dir: Path) -> LLM:
    return LLM(tiny_llm_dir)


def test_every_line_gets_the_librarys_answer(
    cli: Cli, model: Path, tmp_path: Path, llm: LLM
) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    tools = [{"type": "function", "function": {"name": "river", "parameters": {}}}]
    source = write(
        tmp_path / "in.jsonl",
        [
            {"prompt": "the river", "id": "first"},
            "",
            {"prompt": [5, 6, 7], "id": 2, "temperature": 0, "max_tokens": 9},
            {"messages": messages, "tools": tools, "n": 2, "logprobs": 1},
            {"prompt": "deep", "logit_bias": {"65": 100}, "stop": ["zz"], "seed": 9},
        ],
    )
    target = tmp_path / "out.jsonl"
    done = cli("generate", "-m", model, "--input", source, "--output", target, *FLAGS)

    assert done.returncode == 0
    assert done.stdout == ""
    assert "answered 4 of 4 prompts" in done.stderr
    results = read(target.read_text(encoding="utf-8"))
    assert {line: result.get("id") for line, result in results.items()} == {
        1: "first",
        3: 2,
        4: None,
        5: None,
    }
    user = llm.render([{"role": "user", "content": "the river"}])
    deep = llm.render([{"role": "user", "content": "deep"}])
    expected = {
        1: (user, PARAMS),
        3: ([5, 6, 7], PARAMS | {"temperature": 0, "max_tokens": 9}),
        4: (llm.render(messages, tools=tools), PARAMS | {"n": 2, "logprobs": 1}),
        5: (deep, PARAMS | {"logit_bias": {65: 100}, "stop": ["zz"], "seed": 9}),
    }
    for line, (prompt, params) in expected.items():
        alone = llm.generate(prompt, SamplingParams(**params))[0]  # type: ignore[arg-type]  # by name
        outputs = results[line]["outputs"]
        assert [o["token_ids"] for o in outputs] == [list(o.token_ids) for o in alone.outputs]
        assert results[line]["seed"] == alone.seed
    assert results[1]["prompt"] == user.text
    assert results[3]["prompt"] is None
    assert len(results[4]["outputs"][0]["logprobs"]) == 6


BAD = {
    "no json": "not JSON",
    "[1]": "not a JSON object",
    '{"prompt": NaN}': "NaN",
    '{"prompt": "a", "promt": 1}': "unknown field 'promt'",
    '{"id": "x"}': "prompt or messages",
    '{"prompt": "a", "messages": []}': "prompt or messages",
    '{"prompt": "a", "tools": []}': "tools",
    '{"prompt": 5}': "prompt = 5",
    '{"prompt": ""}': "the prompt is empty",
    '{"prompt": []}': "the prompt is empty",
    '{"prompt": [5, 512]}': "token id 512",
    '{"prompt": [5, "a"]}': "'a'",
    '{"prompt": "a", "id": [1]}': "id = [1]",
    '{"prompt": "a", "temperature": -1}': "temperature = -1",
    '{"prompt": "a", "temperature": null}': "temperature = None",
    '{"prompt": "a", "top_k": 1.5}': "top_k = 1.5",
    '{"prompt": "a", "stop": 5}': "stop = 5",
    '{"prompt": "a", "stop": [5]}': "stop = 5",
    '{"prompt": "a", "stop_token_ids": 5}': "stop_token_ids = 5",
    '{"prompt": "a", "stop_token_ids": [600]}': "token id 600",
    '{"prompt": "a", "logit_bias": [1]}': "logit_bias = [1]",
    '{"prompt": "a", "logit_bias": {"a": 1}}': "logit_bias",
    '{"prompt": "a", "logit_bias": {"600": 1}}': "token id 600",
    f'{{"prompt": "a", "logit_bias": {{"{"9" * 5000}": 1}}}}': "logit_bias",
    f'{{"prompt": "a", "temperature": 1{"0" * 400}}}': "temperature = 1000",
    '{"prompt": "a", "ignore_eos": 1}': "ignore_eos = 1",
    '{"prompt": "a", "n": 2, "temperature": 0}': "n = 2",
    '{"prompt": "a", "min_tokens": 7}': "min_tokens = 7",
    '{"messages": []}': "messages = []",
    '{"messages": null}': "messages = None",
    '{"messages": [{"role": "user"}]}': "no content",
    '{"messages": [{"role": "user", "content": "a"}], "tools": 5}': "tools = 5",
    '{"messages": [{"role": "king", "content": "a"}]}': "king",
    json.dumps({"prompt": "深" * 2000}): "tokens",
}


def test_bad_lines_are_reported_and_the_rest_goes_on(cli: Cli, model: Path, tmp_path: Path) -> None:
    good = {"prompt": "a", "id": "good"}
    source = write(tmp_path / "in.jsonl", [good, *BAD, good])
    done = cli("generate", "-m", model, "--input", source, *FLAGS)

    assert done.returncode == 1
    results = read(done.stdout)
    assert results.keys() == set(range(1, len(BAD) + 3))
    assert results[1]["outputs"] == results[len(BAD) + 2]["outputs"]
    *reports, summary = done.stderr.splitlines()
    assert summary.startswith("answered 2 of 2 prompts")
    for number, (report, words) in enumerate(zip(reports, BAD.values(), strict=True), start=2):
        assert report.startswith(f"thalweg: error: line {number}: ")
        assert words in report
        assert results[number]["error"] == report.removeprefix(f"thalweg: error: line {number}: ")


def test_a_bad_line_is_known_by_its_id(cli: Cli, model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"id": "x7", "prompt": ""}, {"prompt": "a"}])
    done = cli("generate", "-m", model, "--input", source, *FLAGS)
    assert read(done.stdout)[1] == {
        "line": 1,
        "id": "x7",
        "error": "the prompt is empty: at least one character",
    }


def test_nothing_but_bad_lines(cli: Cli, model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", ["{", {"prompt": ""}])
    done = cli("generate", "-m", model, "--input", source)
    assert done.returncode == 2
    assert len(read(done.stdout)) == 2


def test_no_lines(cli: Cli, model: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", ["", " "])
    done = cli("generate", "-m", model, "--input", source)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"thalweg: error: --input {source} has no lines\n"


def test_input_from_a_pipe(cli: Cli, model: Path) -> None:
    lines = '\ufeff{"prompt": "a"}\r\n{"prompt": "b\\u2028c"}'
    done = cli("generate", "-m", model, "--input", "-", "--output", "-", *FLAGS, stdin=lines)
    assert done.returncode == 0
    assert len(read(done.stdout)) == 2


def test_ids_come_back_as_they_were(cli: Cli, model: Path, tmp_path: Path) -> None:
    ids = ["\u2028", "\ud800", "深", "🙂", 0, -1, ""]
    source = write(tmp_path / "in.jsonl", [{"id": each, "prompt": "a"} for each in ids])
    target = tmp_path / "out.jsonl"
    cli("generate", "-m", model, "--input", source, "--output", target, *FLAGS)
    results = read(target.read_text(encoding="utf-8"))
    assert [results[line]["id"] for line in sorted(results)] == ids


def test_results_come_as_they_are_done(cli: Cli, model: Path, tmp_path: Path) -> None:
    long, short = {"prompt": "a", "max_tokens": 40}, {"prompt": "b", "max_tokens": 2}
    source = write(tmp_path / "in.jsonl", [long, short])
    done = cli("generate", "-m", model, "--input", source, *FLAGS)
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [2, 1]


def test_ctrl_c_leaves_what_is_done_on_disk(start: Start, model: Path, tmp_path: Path) -> None:
    """The first line is on standard output while the second still runs."""
    short, endless = {"prompt": "a", "max_tokens": 2}, {"prompt": "b", "max_tokens": 1000}
    source = write(tmp_path / "in.jsonl", [short, endless])
    command = ("generate", "-m", model, "--input", source, "--ignore-eos")
    process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(first)["line"] == 1
    assert rest == b""
    assert err.startswith(b"answered 1 of 2 prompts")
    assert err.count(b"\n") == 1
