"""Criterion 3: SmolLM2 out of the same GGUF file, beside llama.cpp.

Both quantise activations to 8 bits wherever weights are quantised, but not with the same bits. So
on the file as it is a reader's measures are compared, the most likely token and the perplexity; on
a copy of it whose weights are float32, and with Thalweg's kernels that keep activations float32,
both compute the same thing (but for llama.cpp's float16 KV cache), and are held to that.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from thalweg import LLM, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from thalweg.engine.outputs import RequestOutput

NUM_POSITIONS = 500
TEXT = """\
JSON (JavaScript Object Notation) is a lightweight data interchange format inspired by JavaScript \
object literal syntax. It is easy for humans to read and write, and it is easy for machines to \
parse and generate. In Python the `json` module converts between Python objects and JSON text.

Encoding basic Python object hierarchies:

    >>> import json
    >>> json.dumps(["foo", {"bar": ["baz", None, 1.0, 2]}])
    '["foo", {"bar": ["baz", null, 1.0, 2]}]'
    >>> print(json.dumps("a string"))
    "a string"
    >>> print(json.dumps({"c": 0, "b": 0, "a": 0}, sort_keys=True))
    {"a": 0, "b": 0, "c": 0}

Pretty printing:

    >>> print(json.dumps({"4": 5, "6": 7}, sort_keys=True, indent=4))
    {
        "4": 5,
        "6": 7
    }

Decoding JSON:

    >>> json.loads('["foo", {"bar": ["baz", null, 1.0, 2]}]')
    ['foo', {'bar': ['baz', None, 1.0, 2]}]

# Rivers

A river is a natural stream of fresh water that flows on land towards another body of water, such \
as an ocean, a sea, a lake or another river. Water first enters rivers through precipitation, \
whether from rainfall, the melting of snow, or seepage from the ground. The place where a river \
begins is called its source, and the place where it ends is called its mouth.

Question: What is the capital of France? Answer: The capital of France is Paris.
Question: What is the capital of Germany? Answer: The capital of Germany is Berlin.
Question: What is the capital of Italy? Answer: The capital of Italy is Rome.
Question: What is the capital of Spain? Answer: The capital of Spain is Madrid.

1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20.
Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday.
"""


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, max_model_len=1024) as llm:
        yield llm


@pytest.fixture(scope="module")
def tokens(llm: LLM) -> list[int]:
    tokens = llm.tokenizer.encode(TEXT)[: NUM_POSITIONS + 1]
    assert len(tokens) == NUM_POSITIONS + 1
    return tokens


@pytest.fixture(scope="module")
def scored(llm: LLM, tokens: list[int]) -> RequestOutput:
    return scores(llm, tokens)


@pytest.fixture(scope="module")
def scored_in_float32(smollm2_path: Path, tokens: list[int]) -> RequestOutput:
    """On kernels that do not quantise activations."""
    with LLM(smollm2_path, max_model_len=1024, kernels="torch") as llm:
        return scores(llm, tokens)


def scores(llm: LLM, tokens: list[int]) -> RequestOutput:
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2)
    output = llm.generate(tokens, params)[0]
    assert [token.id for token in output.prompt_tokens] == tokens[1:]
    return output


def perplexity(output: RequestOutput) -> float:
    return math.exp(-sum(token.logprob or 0.0 for token in output.prompt_tokens) / NUM_POSITIONS)


def peer_logprobs(path: Path, tokens: Sequence[int]) -> NDArray[np.float64]:
    """llama.cpp's log softmax after each token but the last, [NUM_POSITIONS, vocab_size]."""
    llama_cpp: Any = pytest.importorskip("llama_cpp")
    size = NUM_POSITIONS + 12
    peer = llama_cpp.Llama(
        str(path), n_ctx=size, n_batch=size, n_threads=2, logits_all=True, verbose=False
    )
    with contextlib.closing(peer):
        peer.eval(tokens)
        logits = np.array(peer.scores[:NUM_POSITIONS], dtype=np.float64)
    logits -= logits.max(-1, keepdims=True)
    logprobs: NDArray[np.float64] = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return logprobs


@dataclass(frozen=True, slots=True)
class Comparison:
    num_agreed: int
    worst_margin: float
    """Of the positions where they disagree, the largest lead of our first token."""
    perplexity: float
    peer_perplexity: float

    @classmethod
    def of(cls, output: RequestOutput, peer: NDArray[np.float64]) -> Comparison:
        scored = output.prompt_tokens
        peer_top = peer.argmax(-1).tolist()
        margins = [
            token.top[0][1] - token.top[1][1]
            for token, top in zip(scored, peer_top, strict=True)
            if token.top[0][0] != top
        ]
        ids = [token.id for token in scored]
        peer_loss = -float(peer[np.arange(NUM_POSITIONS), ids].mean())
        return cls(
            NUM_POSITIONS - len(margins),
            max(margins, default=0.0),
            perplexity(output),
            math.exp(peer_loss),
        )


def test_top_token_and_perplexity_are_those_of_llama_cpp(
    smollm2_path: Path, tokens: list[int], scored: RequestOutput
) -> None:
    seen = Comparison.of(scored, peer_logprobs(smollm2_path, tokens))
    assert seen.num_agreed >= 0.97 * NUM_POSITIONS
    assert seen.worst_margin < 0.5
    assert seen.perplexity == pytest.approx(seen.peer_perplexity, rel=0.01)


def test_quantised_activations_cost_less_than_half_a_percent(
    scored: RequestOutput, scored_in_float32: RequestOutput
) -> None:
    assert perplexity(scored) == pytest.approx(perplexity(scored_in_float32), rel=0.005)


@pytest.mark.slow
def test_with_float32_weights_they_are_the_same(
    smollm2_path: Path, tokens: list[int], scored_in_float32: RequestOutput, tmp_path: Path
) -> None:
    copy = tmp_path / "float32.gguf"
    write_dequantised(smollm2_path, copy)
    seen = Comparison.of(scored_in_float32, peer_logprobs(copy, tokens))
    copy.unlink()
    assert seen.num_agreed >= 0.998 * NUM_POSITIONS
    assert seen.worst_margin < 1e-2
    assert seen.perplexity == pytest.approx(seen.peer_perplexity, rel=1e-3)


def write_dequantised(source: Path, target: Path) -> None:
    """The same file, but that every tensor is float32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_sure_greedy_answer_is_the_same(llm: LLM, smollm2_path: Path) -> None:
    """Prompt pass, decoding, end of text."""
    llama_cpp: Any = pytest.importorskip("llama_cpp")
    prompt = llm.tokenizer.encode("The seven days of the week are Monday, Tuesday, Wednesday,")
    answer = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=8))[0].outputs[0]
    peer = llama_cpp.Llama(str(smollm2_path), n_ctx=256, n_threads=1, verbose=False)
    with contextlib.closing(peer):
        reply = list(itertools.islice(peer.generate(prompt, top_k=1, temp=0.0), 8))
    assert answer.text.startswith(" Thursday, Friday, Saturday,")
    assert list(answer.token_ids) == reply
