"""The peer that measurements are made against computes what it is thought to compute."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import checkpoints
import make_checkpoint
from gguf_files import llama_cpp_source, write_gguf
from make_gguf import make_gguf
from thalweg import LLM, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("llama_cpp")

from llama_cpp_peer import LlamaModel, LlamaSession, Row, prompt_rows
from llama_cpp_server import Answer, serve

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROMPT = list(range(20, 60))


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peer")
    checkpoints.make_checkpoint(path / "hf", "qwen3")
    write_gguf(path / "tiny.gguf", path / "hf")
    return path / "tiny.gguf"


@pytest.fixture
def session(gguf_path: Path) -> Iterator[LlamaSession]:
    with (
        contextlib.closing(LlamaModel(gguf_path, threads=1)) as model,
        LlamaSession(model, num_seqs=3, max_len=128) as session,
    ):
        yield session


def decoded(session: LlamaSession, seq: int, tokens: list[int], num_new: int) -> list[int]:
    """The tokens after those that the sequence has."""
    for _ in range(num_new):
        position = len(PROMPT) + len(tokens) - 1
        tokens = tokens + session.decode([Row(seq, position, tokens[-1], wanted=True)])
    return tokens


def test_it_chooses_the_tokens_that_we_choose(gguf_path: Path, session: LlamaSession) -> None:
    with LLM(gguf_path, threads=1) as llm:
        params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
        ours = llm.generate(PROMPT, params)[0].outputs[0].token_ids
    theirs = decoded(session, 0, session.decode(prompt_rows(0, PROMPT)), 3)
    assert tuple(theirs) == ours


def test_a_saved_sequence_goes_on_as_it_was(session: LlamaSession) -> None:
    first = session.decode(prompt_rows(0, PROMPT))
    state = session.save(0, len(PROMPT))
    wanted = decoded(session, 0, first, 3)
    session.clear()
    session.load(0, state)
    assert decoded(session, 0, first, 3) == wanted


def test_every_request_is_answered_in_fewer_slots(session: LlamaSession) -> None:
    answers = [Answer(PROMPT[: 10 + i], num_new=3 + i) for i in range(7)]
    serve(session, answers, num_slots=3)
    assert [len(answer.tokens) for answer in answers] == [3, 4, 5, 6, 7, 8, 9]
    session.clear()
    for answer in answers:
        assert session.decode(prompt_rows(0, answer.prompt)) == answer.tokens[:1]
        session.clear()


PROGRAMS = {
    "compare_llama_cpp": ("--repeats", "1", "--cache-memory", "400000000"),
    "serving_throughput": ("--slots", "2", "--requests", "4", "--repeats", "1"),
    "shared_prefix": ("--repeats", "1"),
    "scaling": ("--max-context", "512", "--max-batch", "2", "--max-prompt", "512"),
    "engine_overhead": ("--steps", "4", "--repeats", "1", "--cache-memory", "400000000"),
}


@pytest.fixture(scope="module")
def hybrid_path(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, path = llama_cpp_source(), tmp_path_factory.mktemp("hybrid") / "tiny"
    shape = make_checkpoint.SHAPES["tiny"]
    make_checkpoint.make_checkpoint(path, shape, tokenizer=smollm2_path)
    return make_gguf(path, "bf16", llama_cpp=source)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name: str, hybrid_path: Path) -> None:
    program = [sys.executable, str(BENCHMARKS / f"{name}.py"), str(hybrid_path)]
    done = subprocess.run(
        [*program, "--threads", "1", *PROGRAMS[name]], check=True, stdout=subprocess.PIPE, text=True
    )
    assert "| --- | ---: |" in done.stdout
