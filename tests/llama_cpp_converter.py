"""Runs llama.cpp's converter on a checkpoint that has no tokenizer.

python llama_cpp_converter.py LLAMA_CPP_SOURCE CHECKPOINT [OPTION...]
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main() -> None:
    source, *arguments = sys.argv[1:]
    sys.path.insert(0, source)
    sys.argv = ["convert_hf_to_gguf.py", *arguments, "--outtype", "f32"]
    converter: Any = importlib.import_module("convert_hf_to_gguf")
    for name in ("conversion.llama", "conversion.qwen"):
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and hasattr(value, "set_vocab"):
                value.set_vocab = lambda self: self._set_vocab_none()
    converter.main()


if __name__ == "__main__":
    main()
