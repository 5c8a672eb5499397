"""Results as JSON, with the names the library gives them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.outputs import CompletionOutput, RequestOutput
    from thalweg.text import Tokenizer


class Scored(Protocol):
    """A token of a result."""

    @property
    def id(self) -> int: ...
    @property
    def logprob(self) -> float | None: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


def result_as_json(output: RequestOutput, tokenizer: Tokenizer) -> dict[str, Any]:
    """Logprobs are there only where they were asked for."""
    result: dict[str, Any] = {
        "text": output.text,
        "outputs": [_answer(answer, tokenizer) for answer in output.outputs],
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "seed": output.seed,
        "num_cached_tokens": output.num_cached_tokens,
        "cache_miss": output.cache_miss,
        "num_computed_tokens": output.num_computed_tokens,
        "num_preemptions": output.num_preemptions,
        "drafts": asdict(output.drafts)
        | {"acceptance": output.drafts.acceptance, "mean_length": output.drafts.mean_length},
        "timings": asdict(output.timings),
    }
    if output.prompt_tokens:
        result["prompt_logprobs"] = _logprobs(output.prompt_tokens, tokenizer)
    return result


def _answer(answer: CompletionOutput, tokenizer: Tokenizer) -> dict[str, Any]:
    result: dict[str, Any] = {
        "index": answer.index,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "stop": answer.stop,
    }
    if any(token.logprob is not None for token in answer.tokens):
        result["logprobs"] = _logprobs(answer.tokens, tokenizer)
    return result


def _logprobs(tokens: Sequence[Scored], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    return [
        {
            **_logprob(token.id, token.logprob, tokenizer),
            "top": [_logprob(token_id, logprob, tokenizer) for token_id, logprob in token.top],
        }
        for token in tokens
    ]


def _logprob(token_id: int, logprob: float | None, tokenizer: Tokenizer) -> dict[str, Any]:
    text = ""
    if token_id < tokenizer.vocab_size:  # a model's logits may be wider than its vocabulary
        text = tokenizer.token_bytes(token_id).decode("utf-8", errors="replace")
    return {"id": token_id, "text": text, "logprob": logprob}
