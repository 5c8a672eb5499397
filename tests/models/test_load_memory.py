"""What loading takes: the packed weights, and not a second copy of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import gguf
import pytest
import torch

from gguf_files import random_blocks, write_file
from thalweg.ops import extension

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, WIDTH, VOCAB, LAYERS = 1024, 4096, 40_000, 6
SLACK = 40 << 20
"""Bytes for Python's own objects and the pages of the tensor that is being read."""
PROGRAM = """
import json, sys
from thalweg.config import EngineConfig
from thalweg.models.build import build_model
from thalweg.models.loader import open_checkpoint
from thalweg.models.memory import model_memory

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

config, before = EngineConfig(), peak()
checkpoint = open_checkpoint(sys.argv[1])
built = build_model(checkpoint, config, max_model_len=64)
print(json.dumps([peak() - before, model_memory(checkpoint.headers, config).weights]))
"""


def fill(writer: Any) -> None:
    """A llama of random blocks, most of them Q4_K, as files on the web mix them."""
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)

    def matrix(name: str, rows: int, columns: int, kind: str = "Q4_K") -> None:
        ggml_type = gguf.GGMLQuantizationType[kind]
        blocks = random_blocks(ggml_type, rows * columns).reshape(rows, -1)
        writer.add_tensor(name, blocks, raw_dtype=ggml_type)

    ones = torch.ones(HIDDEN).numpy()
    matrix("token_embd.weight", VOCAB, HIDDEN, "Q6_K")
    writer.add_tensor("output_norm.weight", ones)
    for i in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", ones)
        for name in ("attn_q", "attn_k", "attn_output"):
            matrix(f"blk.{i}.{name}.weight", HIDDEN, HIDDEN)
        matrix(f"blk.{i}.attn_v.weight", HIDDEN, HIDDEN, "Q6_K")
        matrix(f"blk.{i}.ffn_gate.weight", WIDTH, HIDDEN)
        matrix(f"blk.{i}.ffn_up.weight", WIDTH, HIDDEN)
        matrix(f"blk.{i}.ffn_down.weight", HIDDEN, WIDTH, "Q5_0")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_packed_weights(tmp_path: Path) -> None:
    if (reason := extension.reason(torch.float32)) is not None:
        pytest.skip(reason)
    path = write_file(tmp_path / "model.gguf", "llama", fill)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    grown, packed = json.loads(done.stdout)
    assert packed > path.stat().st_size
    assert grown <= 1.2 * packed + SLACK, f"grew by {grown}, packed weights are {packed}"
