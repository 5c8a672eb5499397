"""Thirty-two requests that have as little in common as the options allow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness import MODELS, SMALL, tiny
from serving import Serving, Sizes, make_request
from thalweg.config import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from serving import Drafting, Result
    from thalweg.runner.sampler import Sampler
    from thalweg.scheduler.request import Request
    from thalweg.text import Tokenizer

LENGTHS = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32),
    *(33, 40, 47, 48, 50, 63, 64, 65, 66, 80, 97, 100, 127, 129, 160, 300),
)
GREEDY: dict[str, Any] = {"temperature": 0.0}
OPTIONS: tuple[dict[str, Any], ...] = (
    GREEDY | {"logprobs": 3},
    {},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.8, "logprobs": 0},
    {"min_p": 0.1},
    {"temperature": 1.3, "top_k": 50, "top_p": 0.9, "min_p": 0.02},
    {"n": 3},
    {"n": 3, "logprobs": 2, "top_p": 0.95},
    GREEDY | {"prompt_logprobs": 0},
    GREEDY | {"prompt_logprobs": 5, "logprobs": 5},
    GREEDY | {"repetition_penalty": 1.3},
    GREEDY | {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"repetition_penalty": 0.8, "presence_penalty": -1.0, "frequency_penalty": -0.5},
    {"logit_bias": {5: 4.0, 9: -100.0, 17: 2.5}, "logprobs": 1},
    {"min_tokens": 6, "stop_token_ids": tuple(range(100, 300))},
    {"stop_token_ids": tuple(range(0, 400, 7)), "include_stop": True},
    {"ignore_eos": True, "max_tokens": 14},
    {"seed": None, "logprobs": 1},
    {"seed": None, "n": 3},
    {"seed": 2**64 - 1, "temperature": 100.0},
    {"max_tokens": 1, "n": 3, "prompt_logprobs": 2},
    {"max_tokens": 1},
    {"n": 3, "stop_token_ids": tuple(range(0, 500, 3)), "logprobs": 1},
    {"n": 5, "min_tokens": 2, "stop_token_ids": tuple(range(0, 500, 2))},
    {"temperature": 0.01, "prompt_logprobs": 3},
    GREEDY | {"logit_bias": dict.fromkeys(range(40, 90), 1.5)},
    {"top_k": 1, "logprobs": 4},
    {"n": 3, "repetition_penalty": 1.1, "presence_penalty": 0.3, "min_p": 0.05},
)
STOPPED: tuple[dict[str, Any], ...] = (
    {},
    {"include_stop": True},
    {"n": 3, "logprobs": 1},
    {"min_tokens": 4},
)
"""What goes with stop strings, which are taken from what comes without them."""

TEXT_MODELS = MODELS | {"small-text": replace(SMALL, vocab_size=512)}


class Mixture:
    """The requests for one model, and what each gets alone on the reference kernels."""

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.requests = mixed_requests(self.serving(), self.run_alone)
        self.alone = {request.id: self.run_alone(request) for request in self.requests}

    def serving(
        self,
        sizes: Sizes | None = None,
        *,
        kernels: str = "reference",
        sampler: Sampler | None = None,
        drafting: Drafting | None = None,
    ) -> Serving:
        return Serving(
            tiny(TEXT_MODELS[self.name], kernels),
            self.tokenizer,
            sizes,
            sampler=sampler,
            drafting=drafting,
        )

    def run_alone(self, request: Request) -> Result:
        return self.serving().run([request])[request.id]


def mixed_requests(serving: Serving, run: Callable[[Request], Result]) -> list[Request]:
    """`serving` admits them; `run` is used to see what the stop strings have to stop."""
    order = [LENGTHS[(i * 11 + 3) % 32] for i in range(32)]  # neither growing nor shrinking
    requests = []
    for i, length in enumerate(order):
        prompt = [(i * 37 + p * p * 13 + p * 5) % 500 for p in range(length)]
        options: dict[str, Any] = {"seed": i, "max_tokens": 6 + i % 4}
        options |= OPTIONS[i] if i < len(OPTIONS) else STOPPED[i - len(OPTIONS)]
        name = f"r{i}"
        request = make_request(name, prompt, SamplingParams(**options), serving)
        if i >= len(OPTIONS):
            stops = stops_within(run(request), options.get("min_tokens", 0))
            request = make_request(name, prompt, SamplingParams(**options, stop=stops), serving)
        requests.append(request)
    return requests


def stops_within(result: Result, min_tokens: int) -> Sequence[str]:
    """Three strings of which one ends the first answer, and one looks as if it would."""
    text = result.answers[0].text
    at = len(text) * 2 // 3 if min_tokens else len(text) // 2
    return [text[at : at + 2], text[at : at + 1] + "never", text + "!"]
