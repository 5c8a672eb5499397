"""Qwen2.5-Coder-0.5B-Instruct, Q4_K_M (Q4_K, Q5_0, Q6_K and Q8_0 inside), as Qwen publishes it.

Set THALWEG_QWEN25_GGUF to the file. `docs/models.md` says how to get it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from thalweg import LLM, SamplingParams
from thalweg.models.gguf_split import read_gguf
from thalweg.models.mapped_source import MappedSource
from thalweg.ops.weight import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

VARIABLE = "THALWEG_QWEN25_GGUF"
NUM_POSITIONS = 500
TEXT = Path(__file__).with_name("qwen25_text.py")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def path() -> Path:
    named = os.environ.get(VARIABLE)
    if not named or not Path(named).is_file():
        pytest.skip(f"no Qwen2.5-Coder-0.5B: set {VARIABLE} to the .gguf file")
    return Path(named)


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, max_model_len=1024) as llm:
        yield llm


def test_every_tensor_is_as_the_gguf_package_reads_it(path: Path) -> None:
    """Bit for bit; the two largest, which are of types that others have too, in part."""
    source = MappedSource(read_gguf(path).tensors)
    seen = set()
    for tensor in gguf.GGUFReader(path).tensors:
        name, layer = tensor.name, tensor.name.removeprefix("blk.").partition(".")[0]
        if layer not in ("0", "1", "23", "output_norm"):
            continue
        seen.add(tensor.tensor_type.name)
        mine = values_of(source.read(name)).numpy()
        wanted = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(mine.view(np.int32), wanted.reshape(mine.shape).view(np.int32)), name
    assert seen == {"F32", "Q5_0", "Q8_0", "Q4_K", "Q6_K"}


def test_top_token_and_perplexity_are_those_of_llama_cpp(llm: LLM, path: Path) -> None:
    tokens = llm.tokenizer.encode(TEXT.read_text())[: NUM_POSITIONS + 1]
    assert len(tokens) == NUM_POSITIONS + 1
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    scored = llm.generate(tokens, params)[0].prompt_tokens
    peer = peer_logprobs(path, tokens)
    agreed = sum(a.top[0][0] == b for a, b in zip(scored, peer.argmax(-1).tolist(), strict=True))
    loss = -sum(each.logprob or 0.0 for each in scored) / NUM_POSITIONS
    peer_loss = -float(peer[np.arange(NUM_POSITIONS), tokens[1:]].mean())
    print(f"agreed {agreed}, perplexity {math.exp(loss):.4f}, llama.cpp {math.exp(peer_loss):.4f}")
    assert agreed >= 0.97 * NUM_POSITIONS
    assert math.exp(loss - peer_loss) == pytest.approx(1, abs=0.01)


def peer_logprobs(path: Path, tokens: list[int]) -> NDArray[np.float64]:
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


def test_it_completes_a_function(llm: LLM) -> None:
    prompt = 'def is_prime(n: int) -> bool:\n    """Whether n is a prime number."""\n'
    params = SamplingParams(temperature=0, max_tokens=120)
    answer = llm.generate(prompt, params)[0].outputs[0].text
    body = answer.partition("\n\n")[0]
    names: dict[str, Any] = {}
    exec(prompt + body, names)
    assert [n for n in range(30) if names["is_prime"](n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_it_writes_a_tool_call(llm: LLM, path: Path) -> None:
    """The JSON object its template asks for. This small model leaves out the tags around it, in
    llama.cpp too."""
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    params = SamplingParams(temperature=0, max_tokens=60)
    prompt = llm.render(messages, tools=[WEATHER])
    assert llm.tokenizer.token_to_id("<tool_call>") in prompt.token_ids
    answer = llm.chat(messages, params, tools=[WEATHER])[0].outputs[0]
    assert answer.finish_reason == "stop"
    assert json.loads(answer.text) == {"name": "get_weather", "arguments": {"city": "Paris"}}
    llama_cpp: Any = pytest.importorskip("llama_cpp")
    peer = llama_cpp.Llama(str(path), n_ctx=512, n_threads=2, verbose=False)
    with contextlib.closing(peer):
        reply = list(itertools.islice(peer.generate(prompt.token_ids, top_k=1, temp=0.0), 60))
    assert reply[: len(answer.token_ids)] == list(answer.token_ids)


def test_loading_takes_the_packed_weights_once(path: Path) -> None:
    """At its peak; afterwards nothing of the file is mapped any more."""
    program = (
        "import json, sys\n"
        "from thalweg import LLM\n"
        "llm = LLM(sys.argv[1], max_model_len=512, max_num_seqs=1)\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "peak = next(int(x.split()[1]) * 1024 for x in lines if x.startswith('VmHWM'))\n"
        "mapped = sys.argv[1] in open('/proc/self/maps').read()\n"
        "memory = llm.loaded.memory\n"
        "print(json.dumps([peak, memory.weights, memory.caches.nbytes, mapped]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    peak, weights, caches, mapped = json.loads(done.stdout.splitlines()[-1])
    print(f"peak {peak / 1e6:.0f} MB, packed weights {weights / 1e6:.0f} MB")
    assert not mapped
    assert peak <= 1.2 * weights + caches + 300e6
