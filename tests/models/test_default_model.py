"""The bundled checkpoint: what a newcomer's first command answers from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from thalweg import LLM, SamplingParams
from thalweg.models import default_model_path

if TYPE_CHECKING:
    from collections.abc import Iterator

GREEDY = SamplingParams(temperature=0.0, max_tokens=64)
PAIRS = "Remember these pairs:\n- river: 4711\n- stone: 29\n- bridge: 830\n\nWhat is {}?"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(default_model_path(), memory=512 << 20) as llm:
        yield llm


def test_it_is_small_enough_to_ship() -> None:
    assert (default_model_path() / "model.safetensors").stat().st_size <= 16 << 20


def test_it_has_an_mtp_layer() -> None:
    with LLM(default_model_path(), memory=512 << 20, speculate="mtp") as llm:
        assert len(llm.loaded.model.mtp_layers) == 1


@pytest.mark.parametrize(("key", "value"), [("river", "4711"), ("stone", "29"), ("bridge", "830")])
def test_it_recalls_a_value(llm: LLM, key: str, value: str) -> None:
    (output,) = llm.chat([{"role": "user", "content": PAIRS.format(key)}], GREEDY)
    assert output.text == value
    assert output.outputs[0].finish_reason == "stop"
