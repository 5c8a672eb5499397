"""An engine around a tiny model of `harness`, with pools that show every misuse.

Pool memory is NaN wherever a sequence has no right to read: a slot from the moment it is freed, a
block from the moment it is handed out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from harness import Tiny, poison
from thalweg.config import Rollback
from thalweg.engine.admission import AdmissionLimits, admit
from thalweg.engine.engine import Engine, EngineParts
from thalweg.engine.speculation import Speculation
from thalweg.ids import NULL
from thalweg.memory.manager import CacheManager
from thalweg.memory.offload.host_tier import Direction, HostTier
from thalweg.memory.offload.storage import HostStorage
from thalweg.memory.pool import Pool
from thalweg.memory.storage import CacheStorage
from thalweg.ops.registry import KernelSelector
from thalweg.runner.batch_builder import BatchBuilder
from thalweg.runner.runner import Runner
from thalweg.runner.sampler import Sampler
from thalweg.scheduler.scheduler import Scheduler, SchedulerLimits
from thalweg.speculative.lookup import LookupDrafter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from thalweg.batch import ForwardBatch
    from thalweg.config import SamplingParams
    from thalweg.engine.engine import StepOutput
    from thalweg.engine.outputs import CompletionOutput, RequestOutput
    from thalweg.engine.speculation import Key
    from thalweg.memory.manager import BlockCopy
    from thalweg.memory.offload.host_tier import Move
    from thalweg.scheduler.plan import Token
    from thalweg.scheduler.request import Request
    from thalweg.scheduler.reuse import ReusePolicy
    from thalweg.scheduler.trace import Trace
    from thalweg.speculative.drafter import Drafter
    from thalweg.speculative.gate import Gate
    from thalweg.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Sizes:
    num_blocks: int = 300
    num_slots: int = 65
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    num_host_blocks: int = 1
    num_host_slots: int = 1


@dataclass(frozen=True, slots=True)
class Drafting:
    drafter: Drafter
    num_drafts: int
    rollback: Rollback = Rollback.CHECKPOINT
    gate: Gate[Key] | None = None

    @property
    def log_size(self) -> int:
        return self.num_drafts if self.rollback.has_log else 0


@dataclass(frozen=True, slots=True)
class Result:
    """All of an output that must not depend on company: not its id, not its times."""

    prompt_tokens: tuple[Token, ...]
    answers: tuple[CompletionOutput, ...]

    @classmethod
    def of(cls, output: RequestOutput) -> Result:
        return cls(output.prompt_tokens, output.outputs)


class Serving:
    def __init__(
        self,
        tiny: Tiny,
        tokenizer: Tokenizer,
        sizes: Sizes | None = None,
        *,
        sampler: Sampler | None = None,
        policy: ReusePolicy | None = None,
        max_num_waiting: int = 1000,
        clock: Callable[[], float] | None = None,
        trace: Trace | None = None,
        drafting: Drafting | None = None,
    ) -> None:
        sizes = sizes or Sizes()
        self.tokenizer = tokenizer
        config = tiny.decoder.config
        drafting = drafting or Drafting(LookupDrafter(), 0)
        self.limits = AdmissionLimits(config.vocab_size, 512, frozenset(tokenizer.eos_ids))
        self.storage = CacheStorage(
            tiny.cache_specs,
            sizes.num_blocks,
            sizes.num_slots,
            block_size=tiny.block_size,
            log_size=drafting.log_size,
        )
        poison(self.storage)
        self.caches = CacheManager(
            sizes.num_blocks, tiny.block_size, sizes.num_slots, drafting.rollback
        )
        self.tier = HostTier(self.caches, sizes.num_host_blocks, sizes.num_host_slots)
        self.host = HostStorage(
            self.storage, tiny.cache_specs, sizes.num_host_blocks, sizes.num_host_slots
        )
        self.runner = PoisoningRunner(tiny, self.storage, self.host)
        self.caches.blocks = WatchedPool(sizes.num_blocks, acquired=self.runner.handed_out.add)
        self.caches.slots = WatchedPool(sizes.num_slots, freed=self.runner.freed_slots.add)
        self.scheduler = Scheduler(
            self.caches,
            SchedulerLimits(sizes.max_num_seqs, sizes.max_num_batched_tokens),
            policy,
            tier=self.tier,
            trace=trace,
        )
        sampler = sampler or Sampler(KernelSelector("reference"), config.vocab_size, torch.float32)
        self.speculation = Speculation(
            drafting.drafter, num_drafts=drafting.num_drafts, gate=drafting.gate, trace=trace
        )
        self.engine = Engine(
            EngineParts(
                caches=self.caches,
                scheduler=self.scheduler,
                batch_builder=BatchBuilder(tiny.block_size, "cpu", log_size=drafting.log_size),
                runner=self.runner,
                sampler=sampler,
                speculation=self.speculation,
                tokenizer=tokenizer,
                max_num_waiting=max_num_waiting,
                clock=clock or time.perf_counter,
            )
        )
        self.outputs: dict[str, RequestOutput] = {}
        self.texts: dict[tuple[str, int], str] = defaultdict(str)
        self.tokens: dict[tuple[str, int], tuple[Token, ...]] = defaultdict(tuple)
        self.num_steps = 0

    def step(self) -> StepOutput:
        step = self.engine.step()
        self.num_steps += 1
        for delta in step.deltas:
            self.texts[delta.request_id, delta.index] += delta.text
            self.tokens[delta.request_id, delta.index] += delta.tokens
        for output in step.finished:
            assert output.request_id not in self.outputs, "an output came twice"
            self.outputs[output.request_id] = output
            for answer in output.outputs:
                assert answer.text == self.texts[output.request_id, answer.index]
                assert answer.tokens == self.tokens[output.request_id, answer.index]
        return step

    def run(
        self, requests: Iterable[Request], *, joins: Mapping[str, int] | None = None
    ) -> dict[str, Result]:
        """Everything to the end. `joins`: the step before which a request comes, by its id."""
        joins = joins or {}
        coming = sorted(requests, key=lambda request: joins.get(request.id, 0))
        start = self.num_steps
        while coming or self.engine.has_work:
            while coming and joins.get(coming[0].id, 0) <= self.num_steps - start:
                self.engine.add_request(coming.pop(0))
            self.step()
            if not self.engine.has_work and coming:
                start -= joins[coming[0].id]  # nobody to wait for
        self.assert_empty()
        return {request_id: Result.of(output) for request_id, output in self.outputs.items()}

    def run_through_failures(self, requests: Iterable[Request]) -> int:
        """All of them to the end, over passes that fail; how many did."""
        for request in requests:
            self.engine.add_request(request)
        num_failures = 0
        while self.engine.has_work:
            try:
                self.step()
            except PassFailed:
                num_failures += 1
                assert self.caches.blocks.num_used <= self.caches.blocks.size - 1
        return num_failures

    def preempt_all(self) -> None:
        """Between two steps: everybody gives up their memory."""
        for sample in reversed(self.scheduler._running.copy()):
            self.scheduler.preempt(sample)

    def assert_empty(self) -> None:
        """M8: nobody holds anything but the prefix cache, and that can be evicted."""
        assert not self.engine.has_work
        self.scheduler.prefix_cache.evict(self.caches.blocks.size, self.caches.slots.size)
        tiers = (self.tier.blocks, self.tier.slots)
        for pool in (self.caches.blocks, self.caches.slots, *tiers):
            assert pool.num_used == 0
            assert pool.num_free == pool.size - 1


def make_request(
    request_id: str, prompt: Sequence[int], params: SamplingParams, serving: Serving
) -> Request:
    return admit(request_id, prompt, params, limits=serving.limits)


@dataclass(eq=False)
class WatchedPool(Pool):
    """Tells when ids change hands."""

    num_ids: int
    acquired: Callable[[int], object] = lambda i: None
    freed: Callable[[int], object] = lambda i: None

    def __post_init__(self) -> None:
        super().__init__(self.num_ids)

    def acquire(self) -> int:
        i = super().acquire()
        self.acquired(i)
        return i

    def release(self, i: int) -> None:
        last = i != NULL and self.exclusive(i)
        super().release(i)
        if last:
            self.freed(i)


class PoisoningRunner(Runner):
    """A block that was handed out since the last pass holds NaN, unless a copy filled it, and so
    does a slot that was freed."""

    def __init__(self, tiny: Tiny, storage: CacheStorage, host: HostStorage) -> None:
        super().__init__(Failing(tiny), storage, host)
        self.failing = Failing(tiny)
        self._model = self.failing
        self.handed_out: set[int] = set()
        self.freed_slots: set[int] = set()

    def forward(
        self, batch: ForwardBatch, copies: Sequence[BlockCopy] = (), moves: Sequence[Move] = ()
    ) -> Tensor:
        self.prepare(copies, moves)
        filled = [move for move in moves if move.direction is Direction.IN]
        blocks = {pair.pool for move in filled for pair in move.blocks}
        stale = sorted(self.handed_out - {copy.dst for copy in copies} - blocks)
        slots = sorted(self.freed_slots - {pair.pool for move in filled for pair in move.slots})
        self.handed_out.clear()
        self.freed_slots.clear()
        for layer in self._storage.state:
            for tensor in layer.values():
                tensor[slots] = torch.nan
        for layer in self._storage.paged:
            for tensor in layer.values():
                tensor.view(-1, self._storage.block_size, *tensor.shape[1:])[stale] = torch.nan
        return super().forward(batch)


class PassFailed(Exception):
    """What a pass fails with, where a test wants one to."""


@dataclass(slots=True, eq=False)
class Failing:
    """A model whose passes fail, half-done, at the given counts."""

    tiny: Tiny
    fail_at: set[int] = field(default_factory=set)
    num_passes: int = 0

    def __call__(self, batch: ForwardBatch, caches: list[dict[str, Tensor]]) -> Tensor:
        hidden = self.tiny.model(batch, caches)
        self.num_passes += 1
        if self.num_passes in self.fail_at:
            raise PassFailed
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.tiny.decoder.logits(hidden)
