"""The official client gets what it expects, and what `LLM` gives."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import openai
import pytest

from server_model import MODEL, Running
from thalweg.config import SamplingParams

if TYPE_CHECKING:
    from thalweg import LLM

USER: list[Any] = [{"role": "user", "content": "where does the river run?"}]
SEED: dict[str, Any] = {"seed": 3, "max_tokens": 12}


def test_chat_answers_as_the_library(client: openai.OpenAI, expected: LLM) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=USER, **SEED)
    prompt = expected.render(USER)
    output = expected.generate(prompt, SamplingParams(**SEED))[0]
    message = answer.choices[0].message
    # The template opens a thinking part, and a random model does not close it.
    assert (message.content, message.model_extra) == (
        "",
        {"reasoning_content": output.text.strip()},
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(prompt.token_ids)
    assert answer.usage.completion_tokens == 12


def test_tokens_of_reasoning_are_counted(server: Running, expected: LLM) -> None:
    budget = {"reasoning_budget": 7, "max_tokens": 30, "seed": 3}
    answer = server.chat(**budget, logprobs=True).json()
    thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    end = len(expected.tokenizer.encode_fragment("\n</think>", parse_special=True))
    assert 7 < thought <= 7 + end < answer["usage"]["completion_tokens"]
    cut = server.chat(seed=3, max_tokens=5).json()["usage"]
    assert cut["completion_tokens_details"]["reasoning_tokens"] == 5
    none = server.chat(enable_thinking=False, seed=3, max_tokens=5).json()["usage"]
    assert none["completion_tokens_details"]["reasoning_tokens"] == 0


def test_an_answer_is_the_same_streamed_and_whole(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        **SEED,
        "n": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "extra_body": {"enable_thinking": False},
    }
    whole = client.chat.completions.create(model=MODEL, messages=USER, **options)
    texts, reasons, tokens = [""] * 3, [""] * 3, [[] for _ in range(3)]  # type: ignore[var-annotated]
    stream = client.chat.completions.create(
        model=MODEL,
        messages=USER,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    seen: set[int] = set()
    chunks = list(stream)
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        assert chunk.usage is None
        assert (choice.delta.role == "assistant") == (choice.index not in seen), "role first"
        seen.add(choice.index)
        assert not reasons[choice.index], "nothing comes after the finish reason"
        texts[choice.index] += choice.delta.content or ""
        reasons[choice.index] = choice.finish_reason or ""
        if choice.logprobs is not None:
            tokens[choice.index] += choice.logprobs.content or []
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].model_extra is not None and "cache_miss" in chunks[-1].model_extra["timings"]
    for choice in whole.choices:
        assert choice.message.content == texts[choice.index]
        assert choice.finish_reason == reasons[choice.index]
        assert choice.logprobs is not None
        assert choice.logprobs.content == tokens[choice.index]
    assert len({*texts}) == 3


def test_completions_answer_as_the_library(client: openai.OpenAI, expected: LLM) -> None:
    prompts = ["the river", "a bed of"]
    params = SamplingParams(**SEED, n=2, logprobs=1)
    whole = client.completions.create(model=MODEL, prompt=prompts, n=2, logprobs=1, **SEED)
    answers = [a for output in expected.generate(prompts, params) for a in output.outputs]
    assert [choice.text for choice in whole.choices] == [answer.text for answer in answers]
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts = [""] * 4
    stream = client.completions.create(model=MODEL, prompt=prompts, n=2, stream=True, **SEED)
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]
    for choice, answer in zip(whole.choices, answers, strict=True):
        assert choice.logprobs is not None
        assert choice.logprobs.token_logprobs == [token.logprob for token in answer.tokens]


def test_echo_scores_a_prompt(client: openai.OpenAI, expected: LLM) -> None:
    """A6."""
    scored = client.completions.create(
        model=MODEL, prompt="the river runs", echo=True, logprobs=1, max_tokens=0
    )
    (choice,) = scored.choices
    (output,) = expected.generate("the river runs", SamplingParams(max_tokens=1, prompt_logprobs=1))
    assert choice.text == "the river runs"
    assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
    scores: list[float | None] = [None, *(token.logprob for token in output.prompt_tokens)]
    assert choice.logprobs.token_logprobs == scores
    assert choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert scored.usage is not None and scored.usage.completion_tokens == 0
    echoed = client.completions.create(model=MODEL, prompt="the river", echo=True, **SEED)
    assert echoed.choices[0].text.startswith("the river")


def test_several_stops_end_the_answer_before_the_first(
    client: openai.OpenAI, expected: LLM
) -> None:
    """A1, A18."""
    full = expected.generate("the river", SamplingParams(seed=3, max_tokens=40))[0].text
    stops = [full[20:23], full[12:16]]
    end = min(full.index(stop) for stop in stops)
    given: list[Any] = ["the river", expected.tokenizer.encode("the river")]
    for stream, prompt in product((False, True), given):
        answer: Any = client.completions.create(
            model=MODEL, prompt=prompt, stop=stops, seed=3, max_tokens=40, stream=stream
        )
        text = "".join(chunk.choices[0].text for chunk in (answer if stream else [answer]))
        assert text == full[:end]


def test_cached_tokens_are_reported(client: openai.OpenAI) -> None:
    """A14."""
    long: list[Any] = [{"role": "user", "content": "the river runs deep " * 8}]
    for _ in range(2):
        answer = client.chat.completions.create(model=MODEL, messages=long, **SEED)
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    cached = answer.usage.prompt_tokens_details.cached_tokens
    assert cached is not None and cached >= answer.usage.prompt_tokens - 17
    stream = client.chat.completions.create(
        model=MODEL, messages=long, stream=True, stream_options={"include_usage": True}, **SEED
    )
    usage = list(stream)[-1].usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == cached


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "thalweg"
    with pytest.raises(openai.NotFoundError, match="does not exist here: tiny"):
        client.models.retrieve("gpt")


def test_tokens_of_a_text_and_back(server: Running, expected: LLM) -> None:
    tokens = server.post("/tokenize", prompt="the river 🙂").json()
    assert tokens["tokens"] == expected.tokenizer.encode("the river 🙂")
    assert server.post("/detokenize", tokens=tokens["tokens"]).json() == {"prompt": "the river 🙂"}
    chat = server.post("/tokenize", messages=USER).json()
    assert chat["tokens"] == expected.render(USER).token_ids and chat["count"] == len(
        chat["tokens"]
    )
