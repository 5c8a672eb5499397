"""P21: features that were never tried together crash. Every pair of them serves three requests."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from thalweg import LLM
from thalweg.config import SamplingParams

if TYPE_CHECKING:
    from pathlib import Path

FEATURES: dict[str, dict[str, Any]] = {
    "lookup": {"speculate": "lookup"},
    "many drafts": {"speculate": "lookup", "num_drafts": 16},
    "checkpoint": {"speculate": "lookup", "rollback": "checkpoint"},
    "replay": {"speculate": "lookup", "rollback": "replay"},
    "replay-lazy": {"speculate": "lookup", "rollback": "replay-lazy"},
    "no cache": {"prefix_cache": False},
    "chunks": {"max_num_batched_tokens": 5},
    "few": {"max_num_seqs": 2},
    "offload": {"offload_memory": 1 << 19, "cache_memory": 1 << 20},
    "bound": {"max_inter_token_ms": 5.0},
    "blocks": {"block_size": 3},
    "kv": {"kv_dtype": "bf16"},
    "quantized": {"quantize": "q8"},
}
NUMERIC = ("kv_dtype", "quantize")
"""Options that do change answers: they are compared with plain decoding under the same."""


def answers(model: Path, **options: Any) -> list[Any]:
    params = [
        SamplingParams(temperature=0, max_tokens=12, logprobs=1, logit_bias={70: 100.0}),
        SamplingParams(seed=1, max_tokens=8, logprobs=1, n=2),
        SamplingParams(seed=2, max_tokens=8, prompt_logprobs=1, repetition_penalty=1.1),
    ]
    prompts = [[(i * 7 + p) % 300 for p in range(20 + i)] for i in range(3)]
    options = {"cache_memory": 2 << 20, "threads": 1} | options
    with LLM(model, **options) as llm:
        outputs = llm.generate(prompts, params)
    return [(output.prompt_tokens, output.outputs) for output in outputs]


@pytest.fixture(scope="module")
def plain() -> dict[tuple[str, ...], list[Any]]:
    """By the numeric options, most of which are most often not given."""
    return {}


PAIRS = [
    pytest.param(a, b, marks=[] if {a, b} & {"lookup"} else pytest.mark.slow)
    for a, b in combinations(FEATURES, 2)
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_pair_of_features(
    tiny_llm_dir: Path, plain: dict[tuple[str, ...], list[Any]], first: str, second: str
) -> None:
    options = FEATURES[first] | FEATURES[second]
    numeric = {name: value for name, value in options.items() if name in NUMERIC}
    key = tuple(sorted(numeric))
    if key not in plain:
        plain[key] = answers(tiny_llm_dir, **numeric)
    assert answers(tiny_llm_dir, **options) == plain[key]
