from __future__ import annotations

import pytest

from thalweg.memory.spec import CacheSpec, DType, TensorSpec

K = TensorSpec("k", (2, 8), DType.BFLOAT16)
V = TensorSpec("v", (2, 8), DType.BFLOAT16)
INDEX = TensorSpec("index", (8,), DType.FLOAT32, tokens_per_row=4)
SSM = TensorSpec("ssm", (4, 8, 6), DType.FLOAT32)


def test_sizes_follow_from_shapes() -> None:
    spec = CacheSpec((K, V, INDEX), (SSM,))
    assert spec.block_nbytes(16) == 16 * (32 + 32) + 4 * 32
    assert spec.slot_nbytes() == 4 * 8 * 6 * 4


def test_parts_of_a_layer_are_merged_by_name() -> None:
    merged = CacheSpec((K, V)).merge(CacheSpec((V,), (SSM,)))
    assert merged == CacheSpec((K, V), (SSM,))
    assert merged.merge(merged) == merged


@pytest.mark.parametrize(
    "other",
    [
        CacheSpec((TensorSpec("k", (2, 9), DType.BFLOAT16),)),
        CacheSpec((TensorSpec("k", (2, 8), DType.FLOAT32),)),
        CacheSpec((), (TensorSpec("ssm", (1,), DType.FLOAT32),)),
    ],
)
def test_one_name_has_one_meaning(other: CacheSpec) -> None:
    with pytest.raises(AssertionError, match="two meanings"):
        CacheSpec((K, V), (SSM,)).merge(other)


def test_dtypes_are_found_by_name() -> None:
    assert [DType.named(d.value[0]) for d in DType] == list(DType)
    assert [d.itemsize for d in DType] == [8, 4, 2]
