"""Where an answer ends and what its text is, through the whole engine (A1, A3).

The model runs, but a script says which tokens it draws: one byte each, unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness import SMALL, tiny
from serving import Serving, make_request
from thalweg.config import SamplingParams
from thalweg.ops.registry import KernelSelector
from thalweg.runner.sampler import LogitsSource, Sampler
from thalweg.scheduler.plan import StepPlan, StepResult, Token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from thalweg.engine.outputs import CompletionOutput, Delta, RequestOutput
    from thalweg.text import Tokenizer

SENTENCE = "alpha beta gamma delta"
WIDE = "川の流れ 🙂👩‍🚀 e\u0301 ñ 물\n"


class ScriptedSampler(Sampler):
    """Draws what each answer's script says next."""

    def __init__(self, *scripts: Sequence[int]) -> None:
        super().__init__(KernelSelector("reference"), 512, torch.float32)
        self.scripts = scripts

    def __call__(self, source: LogitsSource, plan: StepPlan) -> StepResult:
        return StepResult(
            tuple(
                Token(self.scripts[row.sample_index][len(row.history) - len(row.request.prompt)])
                for row in plan.sampling
            ),
            (),
        )


class Said:
    """One request's output, and the deltas it came in."""

    def __init__(self, serving: Serving, params: SamplingParams) -> None:
        self.deltas: list[Delta] = []
        serving.engine.add_request(make_request("r", [5, 6, 7], params, serving))
        while serving.engine.has_work:
            self.deltas += serving.step().deltas
        serving.assert_empty()
        self.output: RequestOutput = serving.outputs["r"]
        assert [d.finish_reason for d in self.deltas if d.index == 0].count(None) == (
            len(self.first.token_ids) - 1
        )

    @property
    def first(self) -> CompletionOutput:
        return self.output.outputs[0]

    @property
    def streamed(self) -> list[str]:
        """The first answer's pieces that say anything."""
        return [delta.text for delta in self.deltas if delta.index == 0 and delta.text]


@pytest.fixture
def to_bytes(small_tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """A token for each byte of a text."""
    ids = {small_tokenizer.token_bytes(i): i for i in range(small_tokenizer.vocab_size - 3)}
    return lambda text: [ids[bytes([byte])] for byte in text.encode()]


@pytest.fixture
def say(small_tokenizer: Tokenizer, to_bytes: Callable[[str], list[int]]) -> Callable[..., Said]:
    """Run a script, text or ids, and after it nothing but end of text."""

    def say(*scripts: str | list[int], **options: Any) -> Said:
        ids = [to_bytes(each) if isinstance(each, str) else each for each in scripts]
        ended = [[*each, *small_tokenizer.eos_ids] for each in ids]
        model = tiny(replace(SMALL, vocab_size=512))
        serving = Serving(model, small_tokenizer, sampler=ScriptedSampler(*ended))
        return Said(serving, SamplingParams(n=len(scripts), **options))

    return say


def test_a_stop_string_over_many_tokens_never_shows(say: Callable[..., Said]) -> None:
    said = say(SENTENCE, stop="beta gamma")
    assert said.first.text == "".join(said.streamed) == "alpha "
    assert (said.first.finish_reason, said.first.stop) == ("stop", "beta gamma")
    assert len(said.first.token_ids) == len("alpha beta gamma")
    assert said.streamed == list("alpha ")


def test_the_stop_string_is_kept_where_that_is_asked_for(say: Callable[..., Said]) -> None:
    said = say(SENTENCE, stop="beta gamma", include_stop=True)
    assert said.first.text == "alpha beta gamma"
    assert said.streamed == [*"alpha ", "beta gamma"]


@pytest.mark.parametrize("options", [{}, {"max_tokens": 14}], ids=["end of text", "length"])
def test_a_beginning_that_comes_to_nothing_is_released(
    say: Callable[..., Said], options: dict[str, int]
) -> None:
    said = say("alpha beta gam", stop="beta gamma", **options)
    assert said.first.text == "".join(said.streamed) == "alpha beta gam"
    assert said.first.finish_reason == ("length" if options else "stop")
    said = say("alpha beta game over", stop="beta gamma")
    assert said.first.text == "".join(said.streamed) == "alpha beta game over"
    assert said.streamed[:8] == [*"alpha ", "beta game", " "]


@pytest.mark.parametrize(
    ("stops", "text", "stop"),
    [
        (("gamma", "beta"), "alpha ", "beta"),
        (("beta gamma", "eta"), "alpha b", "eta"),
        (("a b", "ha be", "pha beta"), "alph", "a b"),
        (("gamma delta!", "lta"), "alpha beta gamma de", "lta"),
        (("Beta", "x"), SENTENCE, None),
    ],
)
def test_of_several_the_first_that_is_complete_ends_it(
    say: Callable[..., Said], stops: tuple[str, ...], text: str, stop: str | None
) -> None:
    said = say(SENTENCE, stop=stops)
    assert said.first.text == text
    if stop:
        assert said.first.stop == stop
    else:
        assert said.first.stop in said.output.outputs[0].token_ids


def test_a_stop_string_inside_the_first_token(
    say: Callable[..., Said], small_tokenizer: Tokenizer
) -> None:
    river = small_tokenizer.token_to_id("Ġriver")
    assert river is not None
    said = say([river, river], stop="ive")
    assert (said.first.text, said.first.token_ids) == (" r", (river,))
    assert [delta.text for delta in said.deltas] == [" r"]
    assert say([river], stop="ive", include_stop=True).first.text == " rive"


def test_a_stop_string_completed_by_the_last_allowed_token(say: Callable[..., Said]) -> None:
    said = say(SENTENCE, stop="beta", max_tokens=len("alpha beta"))
    assert (said.first.text, said.first.finish_reason) == ("alpha ", "stop")


def test_of_several_answers_each_ends_for_itself(say: Callable[..., Said]) -> None:
    said = say("one stop two", "three", "stop", stop="stop")
    assert [answer.text for answer in said.output.outputs] == ["one ", "three", ""]
    assert [answer.index for answer in said.output.outputs] == [0, 1, 2]


def test_end_of_text_is_a_token_and_no_text(
    say: Callable[..., Said], small_tokenizer: Tokenizer
) -> None:
    (eos,) = small_tokenizer.eos_ids
    said = say("ab")
    assert (said.first.text, said.first.finish_reason, said.first.stop) == ("ab", "stop", eos)
    assert said.first.token_ids[2:] == (eos,)


def test_end_of_text_can_be_ignored(
    say: Callable[..., Said], small_tokenizer: Tokenizer, to_bytes: Callable[[str], list[int]]
) -> None:
    script = [*to_bytes("ab"), *small_tokenizer.eos_ids, *to_bytes("cd")]
    said = say(script, ignore_eos=True, max_tokens=5)
    assert (said.first.text, said.first.finish_reason) == ("abcd", "length")
    assert len(said.first.token_ids) == 5


def test_a_stop_id_ends_the_text_before_or_after_it(
    say: Callable[..., Said], to_bytes: Callable[[str], list[int]]
) -> None:
    (comma,) = to_bytes(",")
    said = say("ab,cd", stop_token_ids=[comma])
    assert (said.first.text, said.first.stop) == ("ab", comma)
    assert say("ab,cd", stop_token_ids=[comma], include_stop=True).first.text == "ab,"


def test_nothing_ends_before_min_tokens(say: Callable[..., Said]) -> None:
    said = say("stop and stop", stop="stop", min_tokens=5)
    assert said.first.text == "stop and "
    assert say("stop", stop="stop", min_tokens=4, max_tokens=4).first.text == "stop"


def test_a_long_stop_string_holds_back_no_more_than_it_must(say: Callable[..., Said]) -> None:
    said = say("x" * 30, stop="x" * 10 + "y")
    assert said.first.text == "x" * 30
    assert "".join(delta.text for delta in said.deltas[:-1]) == "x" * 20


def test_no_half_character_is_ever_shown(
    say: Callable[..., Said], small_tokenizer: Tokenizer
) -> None:
    """A3"""
    said = say(WIDE)
    assert said.first.text == "".join(said.streamed) == WIDE
    assert said.streamed == list(WIDE)
    assert small_tokenizer.decode(said.first.token_ids) == WIDE


def test_an_answer_cut_within_a_character_ends_in_one_replacement(
    say: Callable[..., Said], small_tokenizer: Tokenizer
) -> None:
    """A3"""
    said = say("a🙂", max_tokens=4)
    assert said.first.text == "".join(said.streamed) == "a\ufffd"
    assert small_tokenizer.decode(said.first.token_ids) == "a\ufffd"


def test_end_of_text_within_a_character(
    say: Callable[..., Said], to_bytes: Callable[[str], list[int]]
) -> None:
    assert say(to_bytes("a🙂")[:3]).first.text == "a\ufffd"


def test_a_stop_string_of_wide_characters(say: Callable[..., Said]) -> None:
    said = say(WIDE, stop=["の流", "🚀"])
    assert said.first.text == "".join(said.streamed) == "川"
    said = say(WIDE, stop="👩‍🚀")
    assert said.first.text == "".join(said.streamed) == "川の流れ 🙂"


def test_an_aborted_answer_has_what_was_held_back(
    small_tokenizer: Tokenizer, to_bytes: Callable[[str], list[int]]
) -> None:
    model = tiny(replace(SMALL, vocab_size=512))
    serving = Serving(model, small_tokenizer, sampler=ScriptedSampler(to_bytes(SENTENCE)))
    params = SamplingParams(stop="beta gamma")
    serving.engine.add_request(make_request("r", [5], params, serving))
    for _ in "alpha beta g":
        serving.step()
    cancelled = serving.engine.cancel("r")
    serving.assert_empty()
    (output,), (delta,) = cancelled.finished, cancelled.deltas
    assert (delta.text, delta.finish_reason) == ("beta g", "abort")
    assert (output.text, output.outputs[0].finish_reason) == ("alpha beta g", "abort")
