"""The tensors of the host tier, and the copies between it and the pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.memory.offload.host_tier import Direction
from thalweg.memory.storage import CacheStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from thalweg.memory.offload.host_tier import Move, Pair
    from thalweg.memory.spec import CacheSpec


class HostStorage:
    """Pools like those of the engine's `CacheStorage`, in the host's memory."""

    def __init__(
        self, pools: CacheStorage, specs: Sequence[CacheSpec], num_blocks: int, num_slots: int
    ) -> None:
        self._pools = pools
        self._host = CacheStorage(
            specs, num_blocks, num_slots, block_size=pools.block_size, log_size=pools.log_size
        )

    @property
    def nbytes(self) -> int:
        return self._host.nbytes

    def copy(self, move: Move) -> None:
        """Carry it out: whole blocks and slots, bit for bit."""
        layers = zip(self._pools.paged, self._host.paged, strict=True)
        for pool_layer, host_layer in layers:
            for name, tensor in pool_layer.items():
                pool = tensor.unflatten(0, (self._pools.num_blocks, -1))
                host = host_layer[name].unflatten(0, (self._host.num_blocks, -1))
                _copy(pool, host, move.blocks, move.direction)
        for pool_layer, host_layer in zip(self._pools.state, self._host.state, strict=True):
            for name, tensor in pool_layer.items():
                _copy(tensor, host_layer[name], move.slots, move.direction)


def _copy(pool: Tensor, host: Tensor, pairs: Sequence[Pair], direction: Direction) -> None:
    """pool: [num_ids, ...], host: [num_host_ids, ...]"""
    for pair in pairs:
        if direction is Direction.OUT:
            host[pair.host] = pool[pair.pool]
        else:
            pool[pair.pool] = host[pair.host]
