"""`thalweg inspect`: what is told of a checkpoint, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from checkpoints import Variant, make_checkpoint
from gguf_files import write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    Cli = Callable[..., CompletedProcess[str]]


def test_gguf_as_json(cli: Cli, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "hf", "qwen3_5", Variant(mtp=True))
    write_gguf(tmp_path / "tiny.gguf", tmp_path / "hf", quantization="Q8_0")
    done = cli("inspect", tmp_path / "tiny.gguf", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["architecture"] == "qwen35 (GGUF)"
    sizes = told["sizes"]
    assert (sizes["num_layers"], sizes["num_mtp_layers"]) == (4, 1)
    assert (sizes["num_attention_layers"], sizes["num_gated_delta_net_layers"]) == (1, 3)
    types = {each["dtype_name"]: each for each in told["tensor_types"]}
    assert types["Q8_0"]["packed_as"] == "q8" and not types["Q8_0"]["is_widened"]
    assert types["F32"]["packed_as"] is None
    assert any("A_log from -exp(A_log)" in each for each in told["conversions"])
    assert any("1 taken off norm weights" in each for each in told["conversions"])
    assert told["tokenizer"]["vocab_size"] == 512
    assert told["template"] is None and told["text_fault"] is None


def test_directory_as_text(cli: Cli, tiny_llm_dir: Path) -> None:
    done = cli("inspect", tiny_llm_dir)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["architecture"] == "qwen3_5_text"
    assert lines["layers"] == "4 layers: 1 attention, 3 gated DeltaNet"
    assert "tokenizer.json, 323 tokens; begin none, end <|im_end|>" in lines["tokenizer"]
    assert "tools" in lines["template"]


def test_a_tokenizer_that_cannot_be_used_is_a_fault(cli: Cli, tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "llama")
    done = cli("inspect", tmp_path)
    assert done.returncode == 0
    assert "tokenizer     none that can be used" in done.stdout
    assert "tokenizer.json does not exist" in done.stdout


def test_what_is_no_model_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli("inspect", tmp_path)
    assert done.returncode == 2 and "has no config.json" in done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
