"""`LLM`: prompts of every kind in, answers out, and nothing left behind however a caller stops."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

from serving import Failing, PassFailed
from thalweg import LLM, RequestError, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from thalweg.engine.outputs import CompletionOutput, Delta, RequestOutput

FEW = SamplingParams(seed=1, max_tokens=6, logprobs=1)
USER = [{"role": "user", "content": "where does the river run?"}]
TOOLS = [{"type": "function", "function": {"name": "depth", "parameters": {}}}]


@pytest.fixture(scope="module")
def shared_llm(tiny_llm_dir: Path) -> Iterator[LLM]:
    with LLM(tiny_llm_dir, kernels="reference", max_model_len=256) as llm:
        yield llm


@pytest.fixture
def llm(shared_llm: LLM) -> Iterator[LLM]:
    yield shared_llm
    assert_empty(shared_llm)


def assert_empty(llm: LLM) -> None:
    """M8, and no result is kept for nobody."""
    parts = llm.loaded.engine._parts
    assert not llm.loaded.engine.has_work
    assert llm.loaded.engine._trackers == {}
    parts.scheduler.prefix_cache.evict(parts.caches.blocks.size, parts.caches.slots.size)
    for pool in (parts.caches.blocks, parts.caches.slots):
        assert pool.num_used == 0 and pool.num_free == pool.size - 1
    assert llm._finished == {} and llm._streams == {}


def answers(outputs: list[RequestOutput]) -> list[tuple[CompletionOutput, ...]]:
    return [output.outputs for output in outputs]


def test_a_prompt_is_text_or_ids(llm: LLM) -> None:
    text = "the river"
    ids = llm.tokenizer.encode(text)
    (by_text,) = llm.generate(text, FEW)
    (by_ids,) = llm.generate(ids, FEW)
    (by_tuple,) = llm.generate([tuple(ids)], FEW)
    assert by_text.outputs == by_ids.outputs == by_tuple.outputs
    assert (by_text.prompt, by_ids.prompt) == (text, None)
    assert by_text.prompt_token_ids == by_ids.prompt_token_ids == tuple(ids)
    assert by_text.text == by_text.outputs[0].text
    assert by_text.num_generated == len(by_text.outputs[0].token_ids)
    assert by_text.seed == 1


def test_many_prompts_of_mixed_kinds_keep_their_order(llm: LLM) -> None:
    prompts: list[Any] = ["the river", [5, 6, 7], llm.render(USER), "a" * 90, (9,)]
    params = [SamplingParams(seed=i, max_tokens=9 - 2 * i, ignore_eos=True) for i in range(5)]
    together = llm.generate(prompts, params)
    one_by_one = [llm.generate([p], each)[0] for p, each in zip(prompts, params, strict=True)]
    assert answers(together) == answers(one_by_one)
    assert [output.num_generated for output in together] == [9, 7, 5, 3, 1]
    assert len({output.request_id for output in (*together, *one_by_one)}) == 10


def test_one_set_of_params_holds_for_all(llm: LLM) -> None:
    outputs = llm.generate(["the river", "the river"], FEW)
    assert outputs[0].outputs == outputs[1].outputs


def test_without_params_the_defaults_hold_and_seeds_differ(tiny_llm_dir: Path) -> None:
    with LLM(tiny_llm_dir, kernels="reference", max_model_len=32) as llm:
        first, second = llm.generate([[300] * 12, [300] * 12])
        assert first.seed != second.seed
        for output in (first, second):
            assert output.num_generated == 20 or output.outputs[0].finish_reason == "stop"
        again = llm.generate([300] * 12, SamplingParams(seed=first.seed))[0]
        assert again.outputs == first.outputs


def test_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_a_wrong_number_of_params_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="2 sampling_params for 3 prompts"):
        llm.generate(["a", "b", "c"], [FEW, FEW])


def test_one_bad_prompt_stops_all_before_anything_runs(llm: LLM) -> None:
    with pytest.raises(RequestError, match="empty"):
        llm.generate(["fine", ""], FEW)


def test_as_completed_yields_each_as_it_is_done(llm: LLM) -> None:
    params = [
        SamplingParams(seed=i, max_tokens=m, ignore_eos=True) for i, m in enumerate((9, 2, 5))
    ]
    pairs = list(llm.as_completed(["one", "two", "three"], params))
    assert [place for place, _ in pairs] == [1, 2, 0]
    outputs = [output for _, output in sorted(pairs, key=lambda pair: pair[0])]
    assert answers(outputs) == answers(llm.generate(["one", "two", "three"], params))


def test_one_conversation_or_many(llm: LLM) -> None:
    other = [{"role": "system", "content": "be deep"}, *USER]
    (one,) = llm.chat(USER, FEW)
    two = llm.chat([USER, other], FEW)
    assert one.prompt == "<|im_start|>user\nwhere does the river run?<|im_end|>\n" + (
        "<|im_start|>assistant\n<think>\n"
    )
    assert two[0].outputs == one.outputs
    assert two[1].prompt is not None and "be deep" in two[1].prompt
    assert answers(llm.generate([llm.render(USER), llm.render(other)], FEW)) == answers(two)


def test_template_options_and_tools_reach_the_template(llm: LLM) -> None:
    (output,) = llm.chat(USER, FEW, tools=TOOLS, enable_thinking=False)
    assert output.prompt is not None
    assert "# Tools" in output.prompt and '"name": "depth"' in output.prompt
    assert output.prompt.endswith("<think>\n\n</think>\n\n")


def test_a_rendered_prompt_says_what_the_next_turn_shares(llm: LLM) -> None:
    prompt = llm.render(USER)
    shared = llm.tokenizer.decode(prompt.token_ids[: prompt.snapshot_hint], skip_special=False)
    assert prompt.text.startswith(shared)
    assert 0 < prompt.snapshot_hint < len(prompt.token_ids)


@pytest.mark.parametrize(
    "messages",
    [[], [{"role": "wizard", "content": "x"}], [{"content": "x"}], [{"role": "user"}, "x"]],
)
def test_a_conversation_the_template_refuses(llm: LLM, messages: list[Any]) -> None:
    """A7"""
    with pytest.raises(RequestError):
        llm.chat(messages, FEW)


def test_a_model_without_a_template_cannot_chat(
    llm: LLM, tiny_llm_dir: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in tiny_llm_dir.iterdir():
        if file.name != "chat_template.jinja":
            (copy / file.name).symlink_to(file)
    with LLM(copy) as other, pytest.raises(RequestError, match="no chat template"):
        other.chat(USER)


def joined(deltas: list[Delta]) -> tuple[str, tuple[int, ...]]:
    text = "".join(delta.text for delta in deltas)
    return text, tuple(token.id for delta in deltas for token in delta.tokens)


def test_a_stream_is_the_answer_in_pieces(llm: LLM) -> None:
    (whole,) = llm.generate("the river", FEW)
    deltas = list(llm.stream("the river", FEW))
    assert joined(deltas) == (whole.text, whole.outputs[0].token_ids)
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == whole.outputs[0].finish_reason
    assert tuple(token for delta in deltas for token in delta.tokens) == whole.outputs[0].tokens


def test_a_stream_of_several_answers(llm: LLM) -> None:
    params = SamplingParams(seed=3, n=3, max_tokens=5, ignore_eos=True)
    (whole,) = llm.generate("the river", params)
    deltas = list(llm.stream("the river", params))
    for answer in whole.outputs:
        mine = [delta for delta in deltas if delta.index == answer.index]
        assert joined(mine) == (answer.text, answer.token_ids)


def test_streams_and_batches_can_be_interleaved(llm: LLM) -> None:
    params = [SamplingParams(seed=i, max_tokens=4 + i, ignore_eos=True) for i in range(4)]
    prompts = ["one", "the second", "a third of them", "4"]
    whole = llm.generate(prompts, params)
    streams = [llm.stream(p, each) for p, each in zip(prompts, params, strict=True)]
    got: list[list[Delta]] = [[] for _ in streams]
    for i in itertools.cycle((0, 1, 2, 1, 3, 0, 0)):
        if (delta := next(streams[i], None)) is not None:
            got[i].append(delta)
        elif all(deltas and deltas[-1].finish_reason for deltas in got):
            break
        if len(got[2]) == 2:  # a batch in the middle of it
            assert answers(llm.generate(prompts, params)) == answers(whole)
    for deltas, output in zip(got, whole, strict=True):
        assert joined(deltas) == (output.text, output.outputs[0].token_ids)
    assert [next(stream, None) for stream in streams] == [None] * 4


@pytest.mark.parametrize("num_pieces", [0, 1, 3])
def test_closing_a_stream_early_ends_the_request(llm: LLM, num_pieces: int) -> None:
    params = SamplingParams(seed=3, n=2, max_tokens=20, ignore_eos=True)
    stream = llm.stream("the river", params)
    for _ in range(num_pieces):
        next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert_empty(llm)
    assert answers(llm.generate("the river", FEW)) == answers(llm.generate("the river", FEW))


def test_closing_one_of_two_streams_leaves_the_other(llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=8, ignore_eos=True)
    (whole,) = llm.generate("the river", params)
    kept, closed = llm.stream("the river", params), llm.stream("a bed", params)
    deltas = [next(kept)]
    next(closed)
    closed.close()  # type: ignore[attr-defined]  # a generator
    deltas += kept
    assert joined(deltas) == (whole.text, whole.outputs[0].token_ids)


def test_leaving_as_completed_early_ends_the_rest(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=m, ignore_eos=True) for m in (20, 1, 20)]
    outputs = llm.as_completed(["one", "two", "three"], params)
    assert next(outputs)[0] == 1
    outputs.close()  # type: ignore[attr-defined]  # a generator


def test_a_stream_that_is_never_begun_costs_nothing(llm: LLM) -> None:
    llm.stream("the river", FEW)
    assert not llm.loaded.engine.has_work
    with pytest.raises(RequestError):
        llm.stream("", FEW)  # said at once, and not at the first next


@pytest.fixture
def failing(llm: LLM) -> Iterator[Callable[[set[int]], None]]:
    """Make the n-th passes from now fail."""
    runner = llm.loaded.engine._parts.runner
    model = runner._model

    class Wrapped(Failing):
        def __call__(self, batch: Any, caches: Any) -> Any:
            hidden = model(batch, caches)
            self.num_passes += 1
            if self.num_passes in self.fail_at:
                raise PassFailed
            return hidden

        def logits(self, hidden: Any) -> Any:
            return model.logits(hidden)

    def fail_at(passes: set[int]) -> None:
        runner._model = Wrapped(None, passes)  # type: ignore[arg-type]

    yield fail_at
    runner._model = model


def test_a_failing_pass_is_told_and_leaves_nothing(
    llm: LLM, failing: Callable[[set[int]], None]
) -> None:
    before = answers(llm.generate(["one", "two"], FEW))
    failing({3})
    with pytest.raises(PassFailed):
        llm.generate(["one", "two"], FEW)
    assert_empty(llm)
    assert answers(llm.generate(["one", "two"], FEW)) == before


def test_a_stream_survives_the_failure_that_ends_another(
    llm: LLM, failing: Callable[[set[int]], None]
) -> None:
    """A13: the one that asked for the step hears of it; the other computes its part again."""
    params = SamplingParams(seed=3, max_tokens=8, ignore_eos=True)
    (whole,) = llm.generate("the river", params)
    failing({4})
    kept, hit = llm.stream("the river", params), llm.stream("a bed", params)
    deltas = [next(kept), next(kept)]
    next(hit)
    with pytest.raises(PassFailed):
        list(hit)
    deltas += kept
    assert joined(deltas) == (whole.text, whole.outputs[0].token_ids)


def test_timings_are_parts_of_the_time_that_passed(llm: LLM) -> None:
    start = time.perf_counter()
    outputs = llm.generate(["one", "two " * 40], SamplingParams(max_tokens=5, ignore_eos=True))
    passed = time.perf_counter() - start
    for output in outputs:
        times = output.timings
        assert times.queue >= 0 and times.prompt > 0 and times.generation > 0
        assert times.queue + times.prompt + times.generation <= passed
    (single,) = llm.generate("one", SamplingParams(max_tokens=1))
    assert single.timings.generation == 0


def test_a_closed_llm_says_so(tiny_llm_dir: Path) -> None:
    with LLM(tiny_llm_dir) as llm:
        stream = llm.stream("the river", FEW)
        next(stream)
    for use in (lambda: llm.generate("x"), lambda: llm.tokenizer, lambda: next(stream)):
        with pytest.raises(RuntimeError, match="this LLM is closed"):
            use()
    llm.close()


def test_loading_reports_its_progress(tiny_llm_dir: Path) -> None:
    calls: list[tuple[int, int]] = []
    with LLM(tiny_llm_dir, progress=lambda done, total: calls.append((done, total))) as llm:
        report = llm.loaded.report
    assert calls == sorted(calls)
    assert calls[-1] == (report.nbytes, report.nbytes)
    assert {total for _, total in calls} == {report.nbytes}


def test_loaded_says_what_it_is_made_of(llm: LLM) -> None:
    loaded = llm.loaded
    assert loaded.model.model_type.startswith("qwen3_5")
    assert loaded.caches.max_model_len == 256
    assert loaded.caches.nbytes == loaded.engine._parts.runner._storage.nbytes
    assert loaded.limits.eos_ids == {llm.tokenizer.token_to_id("<|im_end|>")}
    assert {choice.kernel for choice in loaded.execution.choices} == {"reference"}
    assert "gated_delta_rule" in loaded.execution.text()
