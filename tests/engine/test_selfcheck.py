"""A selfcheck finds nothing where all is well, and says where what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import thalweg.ops.causal_conv1d as conv_op
import thalweg.ops.linear as linear_op
import thalweg.runner.batch_builder as batch_builder
from thalweg import LLM
from thalweg.engine.selfcheck.check import CheckedPass, SelfCheck
from thalweg.errors import ConfigError
from thalweg.ids import SKIP
from thalweg.ops.registry import Kernel, Op

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from thalweg.batch import ForwardBatch, SequenceInput
    from thalweg.scheduler.plan import ScheduledRow

Patch = pytest.MonkeyPatch


def check(path: Path, **options: Any) -> dict[str, CheckedPass]:
    options = {"cache_memory": 4 << 20, "threads": 1} | options
    with LLM(path, **options) as llm:
        return {each.name: each for each in SelfCheck(llm.loaded, llm.config, num_tokens=8).run()}


DRAFTED = ("drafts right", "drafts wrong, checkpoint", "lookup", "everything")


def failed(passes: dict[str, CheckedPass]) -> set[str]:
    return {name for name, each in passes.items() if each.comparison.difference is not None}


def broken(op: Op[Any, Any], breaks: Callable[[Any], Any]) -> Op[Any, Any]:
    """The op with what its compiled kernel is bound to broken."""
    kernel = op.kernels[0]
    assert kernel.name == "cpu"
    bad = Kernel("cpu", lambda problem: breaks(kernel.bind(problem)), kernel.reject)
    return replace(op, kernels=(bad, *op.kernels[1:]))


def test_a_sound_build_passes(tiny_llm_dir: Path) -> None:
    passes = check(tiny_llm_dir, threads=2)
    assert all(each.passed for each in passes.values())
    first = passes["again"].comparison
    assert all(each.comparison == first for each in passes.values())
    assert first.num_tokens == 7 * 8 + 18 and first.num_logprobs > 100
    assert {"one thread", "batched", "chunked", "cached", "parked", "drafts wrong, replay"} <= {
        *passes
    }


def test_p8_a_stale_conv_window_on_rollback_is_found(
    tiny_llm_dir: Path, monkeypatch: Patch
) -> None:
    """Whatever is kept of a row with drafts, its window is that after the last draft."""

    def breaks(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def stale(x: Tensor, conv: Tensor, batch: ForwardBatch) -> Tensor:
            out = right(x, conv, batch)
            for start, stop in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
                stores = batch.state.store_slots[start:stop]
                if len(stores) <= 5 and bool((stores != SKIP).all()):
                    conv[stores.long()] = conv[stores[-1]].clone()
            return out

        return stale

    monkeypatch.setattr(conv_op, "OP", broken(conv_op.OP, breaks))
    passes = check(tiny_llm_dir)
    assert "drafts wrong, checkpoint" in failed(passes) <= {*DRAFTED}
    difference = passes["drafts wrong, checkpoint"].comparison.difference
    assert difference is not None and "logprob" in difference.what
    assert difference.where.startswith("answer") and difference.token > 0


def test_a_snapshot_that_is_off_by_one_token_is_found(
    tiny_llm_dir: Path, monkeypatch: Patch
) -> None:
    right = batch_builder.sequence_input

    def early(row: ScheduledRow) -> SequenceInput:
        given = right(row)
        stores = list(given.store_slots)
        for i in row.reservation.capture_at:
            if i and i < len(stores) - 1 and stores[i - 1] == SKIP:
                stores[i - 1], stores[i] = stores[i], SKIP
        return replace(given, store_slots=stores)

    monkeypatch.setattr(batch_builder, "sequence_input", early)
    passes = check(tiny_llm_dir)
    assert failed(passes) == {"cached", "everything"}
    difference = passes["cached"].comparison.difference
    assert difference is not None and difference.token == 0


def test_a_sum_that_depends_on_the_batch_is_found(tiny_llm_dir: Path, monkeypatch: Patch) -> None:
    """Rows in company are summed in two parts."""

    def breaks(right: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def linear(x: Tensor) -> Tensor:
            if len(x) == 1:
                return right(x)
            middle = x.shape[1] // 2
            part = torch.zeros_like(x)
            part[:, :middle] = x[:, :middle]
            return right(part) + right(x - part)

        return linear

    monkeypatch.setattr(linear_op, "OP", broken(linear_op.OP, breaks))
    passes = check(tiny_llm_dir)
    assert {"batched", "joining", "preempted", "drafts right"} <= failed(passes)
    assert "again" not in failed(passes)
    assert not passes["batched"].passed


def test_a_difference_names_both_values_and_their_bits(
    tiny_llm_dir: Path, monkeypatch: Patch
) -> None:
    def breaks(right: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: right(x) if len(x) == 1 else right(x) * 1.0000001

    monkeypatch.setattr(linear_op, "OP", broken(linear_op.OP, breaks))
    difference = check(tiny_llm_dir)["batched"].comparison.difference
    assert difference is not None
    told = difference.as_json()
    assert told["expected_bits"] != told["found_bits"]
    assert {told["expected_bits"][:2], told["found_bits"][:2]} == {"0x"}
    assert told["expected_bits"] in difference.text() and told["found_bits"] in difference.text()


def test_a_pass_that_shows_nothing_has_not_passed(tiny_llm_dir: Path) -> None:
    """Blocks longer than the prompts: nothing is cached."""
    passes = check(tiny_llm_dir, block_size=128)
    assert passes["cached"].missing == ("cached_tokens",) and not passes["cached"].passed
    assert not failed(passes)


def test_a_context_that_is_too_short_is_refused(tiny_llm_dir: Path) -> None:
    with (
        LLM(tiny_llm_dir, cache_memory=4 << 20, max_model_len=80) as llm,
        pytest.raises(ConfigError, match="of 80 tokens is too short"),
    ):
        SelfCheck(llm.loaded, llm.config)


@pytest.mark.parametrize("kernels", ["reference", "torch"])
def test_kernels_without_the_promise_are_named(tiny_llm_dir: Path, kernels: str) -> None:
    with LLM(tiny_llm_dir, cache_memory=4 << 20, kernels=kernels) as llm:
        assert SelfCheck(llm.loaded, llm.config).unpromised
