"""`thalweg plan`: quick, small, and of one mind with the engine."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from thalweg import LLM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    CLI = Callable[..., CompletedProcess[str]]

QWEN_27B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 248_320,
    "hidden_size": 5120,
    "intermediate_size": 17_408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 262_144,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
    },
}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A config without weights."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_27B))
    return tmp_path


def planned(cli: CLI, *arguments: object) -> dict[str, Any]:
    result = cli("plan", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_a_large_model_in_a_second_and_little_memory(large: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from thalweg.cli import run
code = run(["plan", {str(large)!r}, "--memory", "96GiB"])
status = Path("/proc/self/status").read_text().split()
print("torch" in sys.modules, status[status.index("VmHWM:") + 1], file=sys.stderr)
sys.exit(code)
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run.returncode == 0, run.stderr
    loaded_torch, peak = run.stderr.split()
    assert loaded_torch == "False"
    assert int(peak) * 1024 < 200e6
    assert after.ru_utime - before.ru_utime < 1, "seconds of a core, whoever else is running"


def test_the_numbers_of_a_large_model(cli: CLI, large: Path) -> None:
    report = planned(cli, large, "--memory", "96GiB", "--context", 32768, "--max-seqs", 8)
    assert report["kv_per_token"] == 16 * 2 * 4 * 256 * 4
    conv, ssm = 3 * (2 * 16 + 48) * 128, 48 * 128 * 128
    assert report["state_per_sequence"] == 48 * (conv + ssm) * 4
    assert report["weights"] == pytest.approx(2 * 27e9, rel=0.05)
    assert report["max_model_len"] == 32768
    counts = {f["num_tokens"]: f["num_seqs"] for f in report["fitting"]}
    assert counts[512] == 8 and counts[32768] == report["num_kv_tokens"] // 32768
    assert report["notes"] == ["there are no weights in the directory: taken to be bfloat16"]


WISHES: tuple[dict[str, Any], ...] = (
    {},
    {"memory": 64 << 20},
    {"max_num_seqs": 3},
    {"memory": 64 << 20, "quantize": "q8", "kv_dtype": "bf16"},
    {"memory": 64 << 20, "quantize": "q4", "block_size": 32, "max_num_batched_tokens": 64},
    {"cache_memory": 8 << 20, "offload_memory": 1 << 20, "kernels": "torch", "dtype": "bfloat16"},
    {"memory": 64 << 20, "speculate": "lookup", "num_drafts": 7, "max_num_seqs": 5},
)


@pytest.mark.parametrize("wishes", WISHES, ids=str)
def test_it_agrees_with_the_engine(cli: CLI, model: Path, wishes: dict[str, Any]) -> None:
    options = [(f"--{name.replace('_', '-')}", value) for name, value in wishes.items()]
    report = planned(cli, model, *(word for option in options for word in option))
    with LLM(model, **wishes) as llm:
        memory, caches = llm.loaded.memory, llm.loaded.caches
        if not caches.has_host_tier:
            assert llm.loaded.engine._parts.runner._storage.nbytes == report["caches"]
    assert (memory.weights, memory.scratch) == (report["weights"], report["scratch"])
    assert caches.nbytes == report["caches"]
    assert caches.max_num_seqs == report["max_num_seqs"]
    assert caches.max_model_len == report["max_model_len"]
    assert (caches.num_slots - 1, (caches.num_blocks - 1) * wishes.get("block_size", 16)) == (
        report["num_states"],
        report["num_kv_tokens"],
    )


def test_options_change_the_plan(cli: CLI, large: Path) -> None:
    """What a user weighs: fewer bits, shorter rows, spare states for guesses."""
    plain = planned(cli, large, "--memory", "96GiB")
    small = planned(cli, large, "--memory", "96GiB", "--quantize", "q4", "--kv-dtype", "bf16")
    assert small["weights"] < plain["weights"] * 0.3
    assert small["kv_per_token"] * 2 == plain["kv_per_token"]
    tight = ("--memory", "96GiB", "--max-seqs", 4, "--context", 512)
    guessing = planned(
        cli, large, *tight, "--speculate", "lookup", "--num-drafts", 3, "--rollback", "checkpoint"
    )
    assert guessing["num_states"] == planned(cli, large, *tight)["num_states"] + 3 * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quantize", "q3"), "quantize = 'q3' is not available"),
        (("--kv-dtype", "int8"), "kv_dtype = 'int8' is not available"),
        (("--num-drafts", "17"), "num_drafts = 17 is not allowed"),
    ],
)
def test_options_are_checked(cli: CLI, large: Path, options: tuple[str, ...], message: str) -> None:
    done = cli("plan", large, *options)
    assert done.returncode == 2 and message in done.stderr


def test_text_for_people(cli: CLI, model: Path) -> None:
    text = cli("plan", model, "--memory", "64MiB").stdout
    for word in ("weights", "a token:", "a sequence:", "for snapshots", "at once", "pass"):
        assert word in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-seqs", "0"), "max_num_seqs = 0 is not allowed: an integer >= 1"),
        (("--context", "0"), "max_model_len = 0 is not allowed"),
        (("--context", "1000000"), "max_model_len = 1000000 is longer than the model's 262144"),
        (("--memory", "1GiB"), "memory = 1 GiB, less than the model's weights (50."),
        (("--memory", "50.5GiB"), "is too small: at least"),
        (("--memory", "56GiB", "--context", "262144"), "does not fit"),
    ],
)
def test_absurd_wishes_get_one_line(
    cli: CLI, large: Path, options: tuple[str, ...], message: str
) -> None:
    result = cli("plan", large, *options)
    assert result.returncode == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line


def test_clamping_says_both_numbers(cli: CLI, large: Path, model: Path) -> None:
    """M1: more sequences than there are states for."""
    notes = planned(cli, large, "--memory", "60GiB", "--max-seqs", "1024")["notes"]
    assert any(note.startswith("1024 sequences were asked for, ") for note in notes)
    prompt = ("generate", "hi", "--model", model, "--max-tokens", "1")
    tiny = cli(*prompt, "--cache-memory", "1MiB", "--max-num-seqs", "1024")
    assert tiny.returncode == 0
    assert "1024 sequences were asked for, " in tiny.stderr


def test_planning_takes_no_longer_than_reading_headers(cli: CLI, model: Path) -> None:
    start = time.process_time()
    planned(cli, model)
    assert time.process_time() - start < 1
