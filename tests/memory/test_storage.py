from __future__ import annotations

import torch

from thalweg.ids import NULL
from thalweg.memory.manager import BlockCopy
from thalweg.memory.spec import CacheSpec, DType, TensorSpec
from thalweg.memory.storage import TORCH_DTYPES, CacheStorage

K = TensorSpec("k", (2, 3), DType.BFLOAT16)
INDEX = TensorSpec("index", (5,), DType.FLOAT32, tokens_per_row=4)
SSM = TensorSpec("ssm", (2, 4, 3), DType.FLOAT32)
SPECS = [CacheSpec((K, INDEX)), CacheSpec((), (SSM,))]


def test_pools_have_the_planned_size_shape_and_dtype() -> None:
    storage = CacheStorage(SPECS, 6, 5, block_size=8)
    assert storage.layers[0]["k"].shape == (48, 2, 3)
    assert storage.layers[0]["index"].shape == (12, 5)
    assert storage.layers[1]["ssm"].shape == (5, 2, 4, 3)
    planned = sum(6 * s.block_nbytes(8) + 5 * s.slot_nbytes() for s in SPECS)
    assert storage.nbytes == planned
    assert storage.layers[1]["ssm"].dtype == TORCH_DTYPES[DType.FLOAT32] == torch.float32


def test_the_zero_state_is_zero_whatever_the_memory_held() -> None:
    """cases.md S20"""
    for _ in range(3):
        storage = CacheStorage(SPECS, 6, 5, block_size=8)
        assert storage.layers[1]["ssm"][NULL].count_nonzero() == 0
        for layer in storage.layers:
            for tensor in layer.values():
                tensor.fill_(torch.nan)


def test_a_copy_takes_the_first_rows_of_a_block_and_nothing_else() -> None:
    storage = CacheStorage([CacheSpec((K,)), CacheSpec((), (SSM,))], 6, 5, block_size=8)
    k, ssm = storage.layers[0]["k"], storage.layers[1]["ssm"]
    k.copy_(torch.arange(k.numel()).view(k.shape) % 251)
    ssm.fill_(1)
    before = k.clone()
    storage.copy([BlockCopy(2, 5, 3), BlockCopy(1, 4, 8)])
    assert torch.equal(k[40:43], before[16:19]) and torch.equal(k[32:40], before[8:16])
    assert torch.equal(k[:32], before[:32]) and torch.equal(k[43:], before[43:])
    assert bool((ssm == 1).all())


def test_pooled_rows_are_copied_as_far_as_they_are_begun() -> None:
    """Several tokens share a row; a row that has begun is copied whole."""
    storage = CacheStorage(SPECS, 6, 5, block_size=8)
    index = storage.layers[0]["index"]
    index.copy_(torch.arange(index.numel()).view(index.shape))
    before = index.clone()
    storage.copy([BlockCopy(2, 5, 3)])
    assert torch.equal(index[10], before[4]) and torch.equal(index[11], before[11])
    storage.copy([BlockCopy(2, 5, 5)])
    assert torch.equal(index[10:12], before[4:6]) and torch.equal(index[:10], before[:10])
