"""Whether the output projection is the embedding: the config's word against the file's content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from thalweg.errors import CheckpointError
from thalweg.models.source import READABLE

if TYPE_CHECKING:
    from thalweg.models.source import TensorSource


@dataclass(frozen=True, slots=True)
class WordHead:
    tied: bool
    embedding_from_head: bool = False
    """Tied, and the file has the matrix only under the head's name."""
    note: str = ""
    """For the load report, where config and file do not say the same."""


def settle_word_head(source: TensorSource, embedding: str, *, tied: bool) -> WordHead:
    """As transformers does: two different matrices are never tied, whatever the config says.

    `embedding` is the stored name of the embedding. Reads both matrices if both are there and the
    config ties them. Raises `CheckpointError` where a head is needed and there is none.
    """
    head = "lm_head.weight"
    entries = source.entries()
    if not tied:
        if head not in entries and embedding in entries:
            raise CheckpointError(
                f"config.json says tie_word_embeddings = false, but there is no {head}: "
                "set it to true if the output projection is the embedding"
            )
        return WordHead(tied=False)
    if head not in entries:
        return WordHead(tied=True)
    if embedding not in entries:
        note = f"{embedding} is tied to {head}, the only one of the two in the file"
        return WordHead(tied=True, embedding_from_head=True, note=note)
    if _equal(source, (embedding, head)):
        return WordHead(tied=True)
    note = f"{head} differs from the embedding: used, although tie_word_embeddings is true"
    return WordHead(tied=False, note=note)


def _equal(source: TensorSource, names: tuple[str, str]) -> bool:
    infos = [source.entries()[name] for name in names]
    if infos[0].shape != infos[1].shape or not all(i.dtype_name in READABLE for i in infos):
        return False
    x, y = (source.read(name) for name in names)
    dtype = torch.promote_types(x.dtype, y.dtype)
    return torch.equal(x.to(dtype), y.to(dtype))
