"""What an answer has cost: OpenAI's counts, and our times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.outputs import RequestOutput


def usage(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    generated = sum(output.num_generated for output in outputs)
    cached = sum(output.num_cached_tokens for output in outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def timings(output: RequestOutput) -> dict[str, Any]:
    """Seconds and tokens of one request; `cache_miss` says why not more of it was cached, and
    `kept_tokens` how many of the guessed ones were right."""
    times = output.timings
    gaps = [gap for answer in times.inter_token for gap in answer]
    return {
        "queue_s": times.queue,
        "prompt_s": times.prompt,
        "generation_s": times.generation,
        "per_token_s": sum(gaps) / len(gaps) if gaps else None,
        "cached_tokens": output.num_cached_tokens,
        "cache_miss": output.cache_miss,
        "computed_tokens": output.num_computed_tokens,
        "preemptions": output.num_preemptions,
        "drafted_tokens": output.drafts.num_drafted,
        "kept_tokens": output.drafts.num_kept,
        "seed": output.seed,
    }
