"""Whether the output projection is the embedding: the config's word against the file's content.
Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import CheckpointError
from thalweg.models.source import READABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from thalweg.models.source import TensorInfo


@dataclass(frozen=True, slots=True)
class WordHead:
    tied: bool
    embedding_from_head: bool = False
    """Tied, and the file has the matrix only under the head's name."""
    note: str = ""
    """For the load report, where config and file do not say the same."""


def settle_word_head(
    entries: Mapping[str, TensorInfo],
    embedding: str,
    *,
    tied: bool,
    are_equal: Callable[[str, str], bool],
) -> WordHead:
    """As transformers does: two different matrices are never tied, whatever the config says.

    `embedding` is the stored name of the embedding. `are_equal` is asked if both matrices are there
    and the config ties them. Raises `CheckpointError` where a head is needed and there is none.
    """
    head = "lm_head.weight"
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
    infos = [entries[embedding], entries[head]]
    alike = infos[0].shape == infos[1].shape and all(i.dtype_name in READABLE for i in infos)
    if alike and are_equal(embedding, head):
        return WordHead(tied=True)
    note = f"{head} differs from the embedding: used, although tie_word_embeddings is true"
    return WordHead(tied=False, note=note)
