"""What a layer says about memory. Torch-free, so that plans can be made without loading a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod


class DType(Enum):
    """Element types of cache tensors; the value is name and size in bytes."""

    FLOAT64 = ("float64", 8)
    FLOAT32 = ("float32", 4)
    BFLOAT16 = ("bfloat16", 2)

    @property
    def itemsize(self) -> int:
        return self.value[1]

    @classmethod
    def named(cls, name: str) -> DType:
        return next(d for d in cls if d.value[0] == name)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    name: str
    shape: tuple[int, ...]
    """Of one row: a token's for `per_token`, a slot's for `per_sequence`."""
    dtype: DType
    tokens_per_row: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What one part of a layer remembers; the parts of a layer are merged by name."""

    per_token: tuple[TensorSpec, ...] = ()
    """Grows with the context: k, v, indexer keys."""
    per_sequence: tuple[TensorSpec, ...] = ()
    """Fixed size: conv window, recurrent matrix, last hidden."""
    per_draft: tuple[TensorSpec, ...] = ()
    """The log: what has to be known of a token to bring `per_sequence` past it. A slot has room
    for as many as the engine's rollback wants."""

    def merge(self, other: CacheSpec) -> CacheSpec:
        """Both parts' tensors. The same name twice must mean the same tensor."""
        names = {t.name: t for t in self.per_token + self.per_sequence + self.per_draft}
        for t in other.per_token + other.per_sequence + other.per_draft:
            assert names.setdefault(t.name, t) == t, f"two meanings of cache tensor {t.name!r}"
        return CacheSpec(
            tuple(dict.fromkeys(self.per_token + other.per_token)),
            tuple(dict.fromkeys(self.per_sequence + other.per_sequence)),
            tuple(dict.fromkeys(self.per_draft + other.per_draft)),
        )

    def block_nbytes(self, block_size: int) -> int:
        """Bytes of one block of tokens."""
        return sum(t.nbytes * (block_size // t.tokens_per_row) for t in self.per_token)

    def slot_nbytes(self, log_size: int = 0) -> int:
        """Bytes of one slot with room for so many logged tokens."""
        return sum(t.nbytes for t in self.per_sequence) + log_size * self.log_nbytes()

    def log_nbytes(self) -> int:
        """Bytes of one logged token."""
        return sum(t.nbytes for t in self.per_draft)
