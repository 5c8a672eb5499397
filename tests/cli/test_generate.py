"""`thalweg generate` with one prompt."""

from __future__ import annotations

import json
import math
import os
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

PARAMS = SamplingParams(seed=5, temperature=0.7, max_tokens=12, ignore_eos=True)
FLAGS = ("--seed", 5, "--max-tokens", 12, "--ignore-eos")


@pytest.fixture(scope="module")
def llm(tiny_llm_dir: Path) -> LLM:
    return LLM(tiny_llm_dir)


def test_prints_what_the_library_says(cli: Cli, model: Path, llm: LLM) -> None:
    done = cli("generate", "--model", model, *FLAGS, "--raw", "the river")
    assert done.returncode == 0
    assert done.stdout == llm.generate("the river", PARAMS)[0].text + "\n"
    assert done.stderr == ""


def test_a_text_is_a_users_message(cli: Cli, model: Path, llm: LLM) -> None:
    done = cli("generate", "-m", model, *FLAGS, "the river")
    messages = [{"role": "user", "content": "the river"}]
    assert done.stdout == llm.chat(messages, PARAMS)[0].text + "\n"


def test_system_message(cli: Cli, model: Path, llm: LLM) -> None:
    done = cli("generate", "-m", model, *FLAGS, "--system", "be deep", "the river")
    messages = [
        {"role": "system", "content": "be deep"},
        {"role": "user", "content": "the river"},
    ]
    assert done.stdout == llm.chat(messages, PARAMS)[0].text + "\n"


def test_a_model_without_a_template_continues_the_text(cli: Cli, own_model: Path, llm: LLM) -> None:
    (own_model / "chat_template.jinja").unlink()
    done = cli("generate", "-m", own_model, *FLAGS, "the river")
    assert done.stdout == llm.generate("the river", PARAMS)[0].text + "\n"


def test_prompt_from_standard_input_loses_its_last_line_end_only(
    cli: Cli, model: Path, llm: LLM
) -> None:
    done = cli("generate", "-m", model, *FLAGS, "--raw", "-", stdin="two\nlines\n\n")
    assert done.stdout == llm.generate("two\nlines\n", PARAMS)[0].text + "\n"


def test_a_closed_standard_input_is_an_empty_one(start: Start, model: Path) -> None:
    closed = {"preexec_fn": lambda: os.close(0), "stderr": subprocess.PIPE}
    process = start("generate", "-", "-m", model, **closed)
    assert process.communicate()[1] == (
        b"thalweg: error: the prompt is empty: at least one character\n"
    )
    process = start("chat", "-m", model, **closed)
    assert process.communicate()[1] == b"" and process.returncode == 0


def test_json_holds_the_whole_result(cli: Cli, model: Path, llm: LLM) -> None:
    flags = ("--json", "--raw", "--logprobs", 2, "--prompt-logprobs", 1, "-n", 2)
    done = cli("generate", "-m", model, *FLAGS, *flags, "the river")
    result: dict[str, Any] = json.loads(done.stdout)
    params = SamplingParams(
        seed=5, temperature=0.7, max_tokens=12, ignore_eos=True, n=2, logprobs=2, prompt_logprobs=1
    )
    expected = llm.generate("the river", params)[0]

    assert result["text"] == expected.text
    assert result["prompt"] == "the river"
    assert result["prompt_token_ids"] == list(expected.prompt_token_ids)
    assert result["seed"] == 5
    assert result["timings"].keys() == {"queue", "prompt", "generation", "inter_token"}
    assert len(result["prompt_logprobs"]) == len(expected.prompt_token_ids) - 1
    for answer, output in zip(result["outputs"], expected.outputs, strict=True):
        assert answer["text"] == output.text
        assert answer["token_ids"] == list(output.token_ids)
        assert answer["finish_reason"] == "length"
        for shown, token in zip(answer["logprobs"], output.tokens, strict=True):
            assert shown["id"] == token.id
            assert shown["logprob"] == token.logprob
            assert [(each["id"], each["logprob"]) for each in shown["top"]] == list(token.top)
            assert all(math.isfinite(each["logprob"]) for each in shown["top"])


def test_json_has_no_logprobs_unasked(cli: Cli, model: Path) -> None:
    result = json.loads(cli("generate", "-m", model, *FLAGS, "--json", "a").stdout)
    assert "prompt_logprobs" not in result
    assert "logprobs" not in result["outputs"][0]


def test_an_unseeded_answer_tells_its_seed(cli: Cli, model: Path) -> None:
    flags = ("--json", "--max-tokens", 12, "--temperature", 1)
    first = json.loads(cli("generate", "-m", model, *flags, "a").stdout)
    again = json.loads(cli("generate", "-m", model, *flags, "--seed", first["seed"], "a").stdout)
    assert again["outputs"] == first["outputs"]


def test_several_answers_are_told_apart(cli: Cli, model: Path) -> None:
    done = cli("generate", "-m", model, *FLAGS, "-n", 3, "a")
    assert done.stdout.count("--- answer") == 3
    assert "--- answer 3 of 3" in done.stdout


def test_bias_stop_ids_and_stop_texts_reach_the_request(cli: Cli, model: Path, llm: LLM) -> None:
    flags = ("--logit-bias", "65=100", "--logit-bias", "66=50", "--temperature", 0)
    done = cli("generate", "-m", model, "--raw", "--json", *flags, "--max-tokens", 3, "a")
    assert json.loads(done.stdout)["outputs"][0]["token_ids"] == [65, 65, 65]

    done = cli("generate", "-m", model, "--raw", "--json", *flags, "--stop-token-id", 65, "a")
    assert json.loads(done.stdout)["outputs"][0]["stop"] == 65

    text = llm.tokenizer.decode([65])
    done = cli("generate", "-m", model, "--raw", "--json", *flags, "--stop", text * 2, "a")
    answer = json.loads(done.stdout)["outputs"][0]
    assert (answer["text"], answer["stop"]) == ("", text * 2)


def test_verbose_tells_of_loading_caches_and_kernels_on_standard_error(
    cli: Cli, model: Path
) -> None:
    done = cli("generate", "-m", model, "-v", "--cache-memory", "64MiB", *FLAGS, "a")
    assert "qwen3_5" in done.stderr
    assert "KV blocks of 16 tokens" in done.stderr
    assert "gated_delta_rule" in done.stderr
    assert done.stdout.count("\n") <= 12


def test_engine_options_reach_the_engine(cli: Cli, model: Path) -> None:
    options = ("--kernels", "reference", "--dtype", "float64", "--block-size", 4)
    limits = ("--max-model-len", 64, "--max-num-seqs", 2, "--max-num-batched-tokens", 8)
    done = cli("generate", "-m", model, "-v", *options, *limits, "--threads", 1, *FLAGS, "a")
    assert done.returncode == 0
    assert "blocks of 4 tokens" in done.stderr
    assert "2 sequences at once and 64 tokens" in done.stderr
    assert "torch.float64" in done.stderr


def test_ctrl_c_ends_it(start: Start, model: Path) -> None:
    command = ("generate", "-m", model, "--ignore-eos", "a")
    process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""
