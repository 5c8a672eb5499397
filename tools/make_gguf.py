"""The GGUF forms of a checkpoint, by llama.cpp's own converter and quantiser."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CONVERTED = ("f32", "f16", "bf16")
QUANTISED = {"q8_0": 7, "q4_0": 2, "q4_1": 3, "q4_k_m": 15}
"""`llama_ftype` of each."""
TYPES = (*CONVERTED, *QUANTISED)


def make_gguf(checkpoint: Path, kind: str, *, llama_cpp: Path) -> Path:
    """CHECKPOINT.KIND.gguf beside the directory. Quantised files are made from the bf16 one."""
    path = checkpoint.with_name(f"{checkpoint.name}.{kind}.gguf")
    if not path.exists():
        part = path.with_suffix(".part")
        if kind in CONVERTED:
            convert(checkpoint, part, kind=kind, llama_cpp=llama_cpp)
        else:
            quantise(make_gguf(checkpoint, "bf16", llama_cpp=llama_cpp), part, kind=kind)
        os.replace(part, path)
    return path


def convert(checkpoint: Path, path: Path, *, kind: str, llama_cpp: Path) -> None:
    converter = str(llama_cpp / "convert_hf_to_gguf.py")
    options = ["--outtype", kind, "--outfile", str(path)]
    if not _has_mtp(checkpoint):
        options.append("--no-mtp")  # it expects a head whatever the config says
    subprocess.run([sys.executable, converter, str(checkpoint), *options], check=True)


def quantise(source: Path, path: Path, *, kind: str) -> None:
    import llama_cpp

    library: Any = llama_cpp
    params = library.llama_model_quantize_default_params()
    params.ftype = QUANTISED[kind]
    params.nthread = len(os.sched_getaffinity(0))
    if failed := library.llama_model_quantize(str(source).encode(), str(path).encode(), params):
        raise RuntimeError(f"llama.cpp's quantiser failed on {source} with {failed}")


def _has_mtp(checkpoint: Path) -> bool:
    from safetensors import safe_open

    for file in checkpoint.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            if any(name.startswith("mtp.") for name in tensors.keys()):  # noqa: SIM118
                return True
    return False
