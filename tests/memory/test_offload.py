"""The host tier: bit for bit there and back, all or nothing, and nothing leaks."""

from __future__ import annotations

import pytest
import torch

from harness import SMALL, bits, tiny
from thalweg.errors import OutOfCache
from thalweg.memory.manager import CacheManager, Sequence
from thalweg.memory.offload.host_tier import Direction, HostTier
from thalweg.memory.offload.storage import HostStorage
from thalweg.memory.storage import CacheStorage

BLOCK = 4


@pytest.fixture
def caches() -> CacheManager:
    return CacheManager(16, BLOCK, 8)


def grown(caches: CacheManager, num_tokens: int) -> Sequence:
    seq = Sequence()
    caches.commit(caches.reserve(seq, num_tokens), num_tokens)
    return seq


def test_bits_come_back_to_other_ids(caches: CacheManager) -> None:
    model = tiny(SMALL, block_size=BLOCK)
    storage = CacheStorage(model.cache_specs, 16, 8, block_size=BLOCK)
    host = HostStorage(storage, model.cache_specs, 6, 3)
    rng = torch.Generator().manual_seed(0)
    for layer in storage.layers:
        for tensor in layer.values():
            random = torch.randint(-(2**31), 2**31 - 1, tensor.shape, generator=rng)
            tensor.copy_(random.to(torch.int32).view(torch.float32))  # NaNs of all kinds too
    tier = HostTier(caches, 6, 3)
    seq = grown(caches, 10)
    blocks, slot = list(seq.blocks), seq.slot

    def content(blocks: list[int], slot: int) -> list[torch.Tensor]:
        rows = [t.unflatten(0, (16, -1))[blocks] for p in storage.paged for t in p.values()]
        return [bits(t).clone() for t in rows] + [
            bits(t[slot]).clone() for s in storage.state for t in s.values()
        ]

    before = content(blocks, slot)
    parked = tier.park(seq)
    assert parked is not None and seq.blocks == [] and caches.blocks.num_used == 0
    host.copy(parked.out)
    others = [grown(caches, 5), grown(caches, 1)]
    for layer in storage.layers:
        for tensor in layer.values():
            tensor.fill_(torch.nan)
    back, move = tier.take_back(parked)
    assert move.direction is Direction.IN
    host.copy(move)
    assert back.blocks != blocks and back.slot != slot
    assert all(map(torch.equal, before, content(back.blocks, back.slot)))
    assert (back.num_computed, back.num_written) == (10, 0)
    for each in [*others, back]:
        caches.free(each)
    assert caches.blocks.num_used == caches.slots.num_used == 0
    assert tier.blocks.num_used == tier.slots.num_used == 0


def test_known_blocks_are_shared_instead_of_copied(caches: CacheManager) -> None:
    tier = HostTier(caches, 6, 3)
    seq = grown(caches, 10)
    known = tuple(caches.blocks.share(block) for block in seq.blocks[:2])
    parked = tier.park(seq)
    assert parked is not None
    back, move = tier.take_back(parked, known)
    assert tuple(back.blocks[:2]) == known and len(move.blocks) == 1
    assert not caches.blocks.exclusive(known[0])


def test_a_full_tier_takes_nothing(caches: CacheManager) -> None:
    tier = HostTier(caches, 4, 3)
    seq = grown(caches, 13)
    assert tier.park(seq) is None
    assert seq.num_computed == 13 and tier.blocks.num_used == 0
    assert HostTier(caches).park(seq) is None, "by default there is no room at all"


def test_coming_back_is_all_or_nothing(caches: CacheManager) -> None:
    tier = HostTier(caches, 6, 3)
    parked = tier.park(grown(caches, 10))
    assert parked is not None
    other = grown(caches, 14 * BLOCK)
    with pytest.raises(OutOfCache) as short:
        tier.take_back(parked)
    assert (short.value.blocks, short.value.slots) == (2, 0)
    assert tier.blocks.num_used == 3 and caches.blocks.num_free == 1
    caches.free(other)
    tier.drop(parked)
    assert tier.blocks.num_used == tier.slots.num_used == 0
