"""Opens, and reads whole, every GGUF file in a folder, with little memory to do it.

python open_each.py FOLDER MEGABYTES

Prints a JSON object a file: what it came to, and in the end by how many megabytes memory grew.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from thalweg.errors import CheckpointError
from thalweg.models.loader import TokenizerMetadata, open_checkpoint
from thalweg.text import tokenizer_from_gguf


def main() -> None:
    folder, megabytes = Path(sys.argv[1]), int(sys.argv[2])
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (megabytes << 20),) * 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in sorted(folder.glob("*.gguf")):
        print(json.dumps({"name": path.stem, "said": say(path)}), flush=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"name": "memory", "grown": grown / 1024}))


def say(path: Path) -> str:
    """The refusal, or nothing."""
    try:
        opened = open_checkpoint(path)
        weights = opened.weights()
        for spec in opened.plan.weights:
            weights[spec.name]
        assert isinstance(opened.tokenizer, TokenizerMetadata)
        tokenizer_from_gguf(opened.tokenizer.values)
    except CheckpointError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
