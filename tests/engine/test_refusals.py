"""Criterion 8: what is refused, and in which words: one line that names the value."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import tokenizers

from checkpoints import edit_config, make_checkpoint
from gguf_files import write_gguf
from thalweg import LLM, CheckpointError, ConfigError, RequestError, SamplingParams, ThalwegError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def copy(tiny_llm_dir: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_llm_dir, tmp_path / "model")


@pytest.fixture(scope="module")
def llm(tiny_llm_dir: Path) -> Iterator[LLM]:
    with LLM(tiny_llm_dir, max_model_len=40) as llm:
        yield llm


def refusal(kind: type[ThalwegError], path: Path, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        LLM(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    assert refusal(CheckpointError, path) == f"{path} does not exist"


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(CheckpointError, tmp_path)


def test_a_directory_without_a_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    assert f"{copy / 'tokenizer.json'} does not exist" in refusal(CheckpointError, copy)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.999])
def test_truncated_safetensors(copy: Path, part: float) -> None:
    file = copy / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * part)])
    message = refusal(CheckpointError, copy)
    assert str(file) in message and "truncated" in message


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_truncated_gguf(tmp_path: Path, part: float) -> None:
    file = tmp_path / "model.gguf"
    write_gguf(file, make_checkpoint(tmp_path / "hf", "llama").path)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * part)])
    message = refusal(CheckpointError, file)
    assert str(file) in message and "truncated" in message


def test_an_unknown_model_type(copy: Path) -> None:
    edit_config(copy, model_type="mamba9")
    message = refusal(CheckpointError, copy)
    assert message.startswith("unknown model_type 'mamba9': known are llama, ")


def test_a_tokenizer_wider_than_the_model(copy: Path) -> None:
    file = str(copy / "tokenizer.json")
    core = tokenizers.Tokenizer.from_file(file)
    core.add_tokens([f"<extra_{i}>" for i in range(200)])
    core.save(file)
    message = refusal(CheckpointError, copy)
    assert "the tokenizer of" in message
    assert "has 523 tokens, but the model's vocabulary is 512" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "device = 'cuda' is not available: use cpu"),
        ({"dtype": "int8"}, "dtype = 'int8' is not available: use float32, "),
        ({"kernels": "magic"}, "kernels = 'magic' is not available: use auto, "),
        ({"rollback": "undo"}, "rollback = 'undo' is not available: use auto, checkpoint, "),
        ({"rollback": "replay"}, "rollback = 'replay' is of no use without speculate"),
        ({"max_num_seqs": 0}, "max_num_seqs = 0 is not allowed: an integer >= 1"),
        ({"max_model_len": 2000}, "max_model_len = 2000 is longer than the model's 1024"),
        ({"cache_memory": 10}, "cache_memory = 10 is too small: at least "),
        ({"speed": 11}, "unknown option 'speed': use "),
    ],
)
def test_options_of_the_engine(tiny_llm_dir: Path, options: dict[str, Any], message: str) -> None:
    assert refusal(ConfigError, tiny_llm_dir, **options).startswith(message)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty: at least one token"),
        ([[]], "the prompt is empty: at least one token"),
        ([1, 512], "token id 512 in the prompt is not allowed: 0 to 511"),
        ([1, -1], "token id -1 in the prompt is not allowed: 0 to 511"),
        ([1, 2.5], "token id 2.5 in the prompt is not allowed: 0 to 511"),
        ([[1, "x"]], "token id 'x' in the prompt is not allowed: 0 to 511"),
        ([5] * 40, "the prompt has 40 tokens, and prompt and answer together may have 40"),
        ([5] * 41, "the prompt has 41 tokens, and prompt and answer together may have 40"),
        ([[True]], "token id True in the prompt is not allowed: 0 to 511"),
        (5, "5 is not allowed as a prompt: text, token ids, or what render returned"),
        (None, "None is not allowed as a prompt: text, token ids, or what render returned"),
        ([None], "None is not allowed as a prompt: text, token ids, or what render returned"),
        ({"a": 1}, "{'a': 1} is not allowed as a prompt: text, token ids, or what render returned"),
        ([b"x"], "b'x' is not allowed as a prompt: text, token ids, or what render returned"),
        ("\ud800", "'\\ud800' is not allowed: text without surrogates"),
    ],
    ids=str,
)
def test_prompts(llm: LLM, prompt: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate(prompt)
    assert str(caught.value) == message
    assert not llm.loaded.engine.has_work


@pytest.mark.parametrize("params", [{"temperature": 0}, [{"temperature": 0}], [None], 5], ids=str)
def test_what_is_no_sampling_params(llm: LLM, params: Any) -> None:
    with pytest.raises(RequestError, match=r"is not allowed: SamplingParams"):
        llm.generate(["the"], params)


@pytest.mark.parametrize("messages", [{"role": "user", "content": "hi"}, None, 5, "hi"], ids=str)
def test_what_is_no_conversation(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match=r"messages = .* is not allowed: a list of at least one"):
        llm.chat(messages)


@pytest.mark.parametrize("tools", [5, "abc", {"a": 1}], ids=str)
def test_what_is_no_list_of_tools(llm: LLM, tools: Any) -> None:
    with pytest.raises(RequestError, match=r"tools = .* is not allowed: a list of objects"):
        llm.chat([{"role": "user", "content": "hi"}], tools=tools)


def test_content_nested_deeper_than_python_goes(llm: LLM) -> None:
    content: Any = "x"
    for _ in range(5000):
        content = [content]
    with pytest.raises(RequestError, match="nested too deep"):
        llm.chat([{"role": "user", "content": content}])


@pytest.mark.parametrize("top_k", [513, 2**31, 2**63, 10**30])
def test_a_top_k_larger_than_the_vocabulary_keeps_all(llm: LLM, top_k: int) -> None:
    options: dict[str, Any] = {"max_tokens": 3, "seed": 1}
    (all_of_it,) = llm.generate("the", SamplingParams(**options))
    (output,) = llm.generate("the", SamplingParams(**options, top_k=top_k))
    assert output.outputs[0].token_ids == all_of_it.outputs[0].token_ids


def test_the_longest_prompt_that_fits_gives_one_token(llm: LLM) -> None:
    (output,) = llm.generate([5] * 39, SamplingParams(max_tokens=100, ignore_eos=True))
    assert output.num_generated == 1
    assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_bias": {512: 1.0}}, "token id 512 in logit_bias is not allowed: 0 to 511"),
        ({"stop_token_ids": [3, 600]}, "token id 600 in stop_token_ids is not allowed: 0 to 511"),
        (
            {"stop_token_ids": range(512), "min_tokens": 1},
            "min_tokens = 1 bans every token: all are stop ids",
        ),
    ],
)
def test_ids_that_the_model_does_not_have(llm: LLM, options: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate("x", SamplingParams(**options))
    assert str(caught.value) == message


NUMBERS: dict[str, tuple[list[Any], str]] = {
    "temperature": (
        [-0.1, 100.1, float("nan"), float("inf"), 10**400, "1", None, True],
        "from 0 to 100",
    ),
    "top_k": ([-1, 1.5, "2", True], "an integer >= 0"),
    "top_p": ([0, -0.5, 1.01, float("nan")], "above 0 and at most 1"),
    "min_p": ([-0.1, 1.1], "from 0 to 1"),
    "repetition_penalty": ([0, -1, 0.009, 101], "from 0.01 to 100"),
    "presence_penalty": ([-2.1, 2.1], "from -2 to 2"),
    "frequency_penalty": ([-2.1, 2.1], "from -2 to 2"),
    "seed": ([-1, 2**64, 1.0], "from 0 to 2**64 - 1"),
    "n": ([0, 129, 1.0], "from 1 to 128"),
    "max_tokens": ([0, -1, 2.0], "an integer >= 1"),
    "min_tokens": ([-1, None], "an integer >= 0"),
    "stop": ([[""], [1], ["a", ""], 5, b"x", {"a": 1}], "non-empty strings"),
    "stop_token_ids": ([[-1], ["x"], 5, "12"], "integers >= 0"),
    "include_stop": ([None, 1, "yes"], "True or False"),
    "ignore_eos": ([None, 0], "True or False"),
    "logprobs": ([-1, 101, 1.0], "from 0 to 100"),
    "prompt_logprobs": ([-1, 101], "from 0 to 100"),
    "logit_bias": ([{-1: 0.0}, {"x": 1.0}, [1], "ab", 5], "token ids >= 0 as keys"),
}


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [(name, value, allowed) for name, (values, allowed) in NUMBERS.items() for value in values],
    ids=str,
)
def test_sampling_options_out_of_range(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name} = ") and message.endswith(allowed + end_of(name))
    assert "\n" not in message


def end_of(name: str) -> str:
    return ", or None" if name in ("seed", "max_tokens", "logprobs", "prompt_logprobs") else ""


@pytest.mark.parametrize("bias", [-100.5, 101, float("nan"), 10**400, "1"])
def test_a_bias_out_of_range(bias: Any) -> None:
    with pytest.raises(RequestError, match=r"logit_bias\[7\] = .*: a number from -100 to 100"):
        SamplingParams(logit_bias={7: bias})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 2, "temperature": 0}, "n = 2 with temperature = 0 gives 2 equal answers"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens = 5 is larger than max_tokens = 4"),
    ],
)
def test_sampling_options_that_contradict_each_other(options: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**options)
    assert str(caught.value) == message
