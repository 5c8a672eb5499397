"""What a user does wrong is one line that names it, and exit code 2."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from checkpoints import edit_config, make_checkpoint
from gguf_files import write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    Cli = Callable[..., CompletedProcess[str]]


def assert_refused(done: CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("thalweg: error: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("command", [["generate", "a"], ["chat"]])
def test_missing_file(cli: Cli, command: list[str]) -> None:
    assert_refused(cli(*command, "--model", "/no/such/model"), "/no/such/model", "does not exist")


def test_truncated_safetensors(cli: Cli, own_model: Path) -> None:
    file = own_model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert_refused(cli("generate", "-m", own_model, "a"), "model.safetensors")


def test_truncated_gguf(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    make_checkpoint(tmp_path / "hf", "llama")
    write_gguf(file, tmp_path / "hf")
    whole = file.read_bytes()
    for size in (len(whole) - 1000, 1000, 10, 0):
        file.write_bytes(whole[:size])
        assert_refused(cli("generate", "-m", file, "a"), "tiny.gguf")


def test_unknown_model_type(cli: Cli, own_model: Path) -> None:
    edit_config(own_model, model_type="mamba9")
    assert_refused(cli("generate", "-m", own_model, "a"), "mamba9", "qwen3_5")


def test_unsupported_tensor_type(cli: Cli, own_model: Path) -> None:
    file = own_model / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"dtype":"F32"', b'"dtype":"I32"', 1))
    assert_refused(cli("generate", "-m", own_model, "a"), "I32")


def test_vocabulary_mismatch(cli: Cli, own_model: Path) -> None:
    file = own_model / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    last = tokenizer["added_tokens"][-1]
    for i in range(1, 200):
        added = last | {"id": last["id"] + i, "content": f"<|extra {i}|>"}
        tokenizer["added_tokens"].append(added)
    file.write_text(json.dumps(tokenizer))
    assert_refused(cli("generate", "-m", own_model, "a"), "522 tokens", "512")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--device", "cuda"),
        ("--dtype", "float16"),
        ("--kernels", "triton"),
        ("--threads", "0"),
        ("--threads", "1000000"),
        ("--threads", "99999999999999999999"),
        ("--block-size", "0"),
        ("--max-num-seqs", "-1"),
        ("--max-model-len", "99999999"),
        ("--cache-memory", "2"),
        ("--cache-memory", "lots"),
        ("--cache-memory", "2000000TB"),
        pytest.param("--cache-memory", "9" * 400, id="--cache-memory-9..."),
        ("--temperature", "-1"),
        ("--top-k", "-1"),
        ("--top-p", "0"),
        ("--min-p", "2"),
        ("--repetition-penalty", "0"),
        ("--presence-penalty", "3"),
        ("--frequency-penalty", "-3"),
        ("--seed", "-1"),
        ("--n", "0"),
        ("--max-tokens", "0"),
        ("--min-tokens", "-1"),
        ("--stop", ""),
        ("--stop-token-id", "-1"),
        ("--stop-token-id", "99999999"),
        ("--logit-bias", "99999999=1"),
        ("--logit-bias", "1=1000"),
        ("--logit-bias", "1"),
        ("--prompt-logprobs", "101"),
    ],
)
def test_a_bad_option_is_named(cli: Cli, model: Path, option: str, value: str) -> None:
    name = option.strip("-").replace("-", "_")
    done = cli("generate", "-m", model, "--json", option, value, "a")
    assert name in done.stderr.replace("-", "_")
    assert_refused(done)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--min-tokens", "9", "--max-tokens", "3"], ["min_tokens", "max_tokens"]),
        (["-n", "2", "--temperature", "0"], ["n = 2", "temperature"]),
        (["--raw", "--system", "x"], ["--raw", "--system"]),
        (["--logprobs", "3"], ["--logprobs", "--json"]),
        (["--prompt-logprobs", "3"], ["--prompt-logprobs", "--json"]),
        (["--output", "x"], ["--output", "--input"]),
        (["--input", "x"], ["PROMPT", "--input"]),
        (["--fast"], ["--fast"]),
    ],
)
def test_options_that_contradict(
    cli: Cli, model: Path, options: list[str], words: list[str]
) -> None:
    assert_refused(cli("generate", "-m", model, *options, "a"), *words)


def test_no_prompt(cli: Cli, model: Path) -> None:
    assert_refused(cli("generate", "-m", model), "PROMPT")


@pytest.mark.parametrize("options", [[], ["--raw"]])
def test_empty_prompt(cli: Cli, model: Path, options: list[str]) -> None:
    assert_refused(cli("generate", "-m", model, *options, ""), "the prompt is empty")
    assert_refused(cli("generate", "-m", model, *options, "-", stdin="\n"), "the prompt is empty")


def test_prompt_longer_than_the_context(cli: Cli, model: Path) -> None:
    done = cli("generate", "-m", model, "--raw", "--max-model-len", 8, "深い川の流れ" * 9)
    assert_refused(done, "8", "tokens")


def test_system_message_without_a_template(cli: Cli, own_model: Path) -> None:
    (own_model / "chat_template.jinja").unlink()
    assert_refused(cli("generate", "-m", own_model, "--system", "x", "a"), "chat template")


def test_chat_without_a_template(cli: Cli, own_model: Path) -> None:
    (own_model / "chat_template.jinja").unlink()
    assert_refused(cli("chat", "-m", own_model), "chat template")


def test_input_that_is_not_there(cli: Cli, model: Path) -> None:
    assert_refused(cli("generate", "-m", model, "--input", "/no/such.jsonl"), "/no/such.jsonl")


def test_output_that_would_overwrite_the_input(cli: Cli, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "a"}\n')
    done = cli("generate", "-m", model, "--input", file, "--output", file)
    assert_refused(done, "overwrite")
    assert file.read_text() == '{"prompt": "a"}\n'


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are read are a failure: what is asked for can be refused before."""
    monkeypatch.setattr("thalweg.engine.loading.build_model", pytest.fail)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("place", ["no/b", "."])
def test_output_that_cannot_be_written(cli: Cli, model: Path, tmp_path: Path, place: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "a"}\n')
    done = cli("generate", "-m", model, "--input", file, "--output", tmp_path / place)
    assert_refused(done, "cannot be written")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("place", ["no/b", "."])
def test_trace_that_cannot_be_written(cli: Cli, model: Path, tmp_path: Path, place: str) -> None:
    done = cli("generate", "-m", model, "--trace-file", tmp_path / place, "a")
    assert_refused(done, "trace_file", "cannot be written")
