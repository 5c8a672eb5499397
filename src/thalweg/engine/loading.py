"""From a model's path to an engine that can take requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.engine.admission import AdmissionLimits
from thalweg.engine.draft_memory import EngineMemory
from thalweg.engine.engine import Engine, EngineParts
from thalweg.engine.speculation import Speculation
from thalweg.errors import CheckpointError
from thalweg.memory.available import available_nbytes
from thalweg.memory.manager import CacheManager
from thalweg.memory.offload.host_tier import HostTier
from thalweg.memory.offload.storage import HostStorage
from thalweg.memory.plan import CachePlan, MemoryPlan, plan_memory
from thalweg.memory.storage import CacheStorage
from thalweg.models.build import ExecutionPlan, build_model
from thalweg.models.loader import Checkpoint, TokenizerDirectory, open_checkpoint
from thalweg.models.memory import model_memory
from thalweg.models.mtp_plan import auto_drafter, settle_mtp_weights
from thalweg.runner.batch_builder import BatchBuilder
from thalweg.runner.runner import Runner
from thalweg.runner.sampler import Sampler
from thalweg.scheduler.policy import make_policy
from thalweg.scheduler.reuse import ReusePolicy
from thalweg.scheduler.scheduler import Scheduler, SchedulerLimits
from thalweg.scheduler.trace import Trace
from thalweg.speculative.gate import Gate
from thalweg.speculative.lookup import LookupDrafter
from thalweg.speculative.mtp import MTPDrafter
from thalweg.text import ChatTemplate, Tokenizer, tokenizer_from_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from thalweg.config import EngineConfig, ModelConfig
    from thalweg.memory.spec import CacheSpec
    from thalweg.models.build import BuiltModel
    from thalweg.models.load_report import LoadReport
    from thalweg.models.loader import Progress
    from thalweg.models.quantisation import Rounding
    from thalweg.speculative.drafter import Drafter

LOGGER = logging.getLogger("thalweg.engine")


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """What any number of engines can share."""

    built: BuiltModel
    specs: tuple[CacheSpec, ...]
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class LoadedEngine:
    """An engine and what it was made of."""

    engine: Engine
    shared: LoadedModel
    limits: AdmissionLimits
    tokenizer: Tokenizer
    template: ChatTemplate | None
    """None: the model has no chat template."""
    model: ModelConfig
    report: LoadReport
    memory: MemoryPlan
    execution: ExecutionPlan
    rounding: Rounding | None
    """What `quantize` did to the matrices."""
    num_threads: int
    """Of a pass."""

    @property
    def caches(self) -> CachePlan:
        """The caches' part of `memory`."""
        return self.memory.caches


def load_engine(
    path: str | Path, config: EngineConfig, progress: Progress | None = None
) -> LoadedEngine:
    """`path` is a Hugging Face directory or a GGUF file. What can be refused is refused before the
    weights are read; `progress` hears of bytes read and bytes in all."""
    checkpoint = open_checkpoint(path)
    if config.speculate == "auto":
        LOGGER.info("speculate = auto is %s", auto_drafter(checkpoint.headers.plan))
    checkpoint = Checkpoint(settle_mtp_weights(checkpoint.headers, config))
    facts = checkpoint.config
    tokenizer, template = load_text(checkpoint)
    if tokenizer.vocab_size > facts.vocab_size:
        raise CheckpointError(
            f"the tokenizer of {path} has {tokenizer.vocab_size} tokens, "
            f"but the model's vocabulary is {facts.vocab_size}"
        )
    needs = model_memory(checkpoint.headers, config)
    memory = plan_memory(needs, config, available=available_nbytes())
    plan = memory.caches
    Trace(config.trace_file)  # cannot be written: known before the weights are read
    built = build_model(checkpoint, config, max_model_len=plan.max_model_len, progress=progress)
    shared = LoadedModel(built, needs.specs, tokenizer)
    eos_ids = frozenset(facts.eos_token_ids) | frozenset(tokenizer.eos_ids)
    return LoadedEngine(
        engine=Engine(make_parts(shared, config, plan)),
        shared=shared,
        limits=AdmissionLimits(facts.vocab_size, plan.max_model_len, eos_ids),
        tokenizer=tokenizer,
        template=template,
        model=facts,
        report=checkpoint.report,
        memory=memory,
        execution=built.kernels.plan(),
        rounding=built.rounding,
        num_threads=built.num_threads,
    )


def make_parts(model: LoadedModel, config: EngineConfig, plan: CachePlan) -> EngineParts:
    """The parts of an engine with caches of its own."""
    storage = CacheStorage(
        model.specs,
        plan.num_blocks,
        plan.num_slots,
        block_size=config.block_size,
        log_size=plan.log_size,
        device=config.device,
    )
    caches = CacheManager(plan.num_blocks, config.block_size, plan.num_slots, plan.rollback)
    tier = HostTier(caches, plan.num_host_blocks, plan.num_host_slots)
    host = None
    if plan.has_host_tier:
        host = HostStorage(storage, model.specs, plan.num_host_blocks, plan.num_host_slots)
    limits = SchedulerLimits(plan.max_num_seqs, config.max_num_batched_tokens)
    reuse = ReusePolicy(config.prefix_cache, config.snapshot_interval)
    trace = Trace(config.trace_file)
    trace.begin(caches, tier, limits, reuse, config=config)
    num_drafts = 0 if config.speculate == "off" else config.num_drafts
    built = model.built
    scheduler = Scheduler(caches, limits, reuse, policy=make_policy(config), tier=tier, trace=trace)
    sampler = Sampler(built.kernels, built.model.config.vocab_size, built.dtype)
    runner = Runner(built.mtp or built.model, storage, host)
    drafter: Drafter = LookupDrafter()
    if built.mtp is not None and config.speculate in ("mtp", "auto"):
        memory = EngineMemory(scheduler, runner)
        drafter = MTPDrafter(
            built.mtp, storage.layers[-1], caches, memory=memory, sample=sampler.sample
        )
    return EngineParts(
        caches=caches,
        scheduler=scheduler,
        batch_builder=BatchBuilder(config.block_size, config.device, log_size=plan.log_size),
        runner=runner,
        sampler=sampler,
        speculation=Speculation(drafter, num_drafts=num_drafts, gate=Gate(), trace=trace),
        tokenizer=model.tokenizer,
        max_num_waiting=config.max_num_waiting,
    )


def load_text(checkpoint: Checkpoint) -> tuple[Tokenizer, ChatTemplate | None]:
    """A checkpoint's tokenizer and chat template, wherever it keeps them."""
    where = checkpoint.tokenizer
    if isinstance(where, TokenizerDirectory):
        tokenizer = Tokenizer.from_directory(where.path)
        return tokenizer, ChatTemplate.from_directory(where.path, tokenizer.names)
    tokenizer = tokenizer_from_gguf(where.values)
    source = where.values.get("tokenizer.chat_template")
    return tokenizer, None if source is None else ChatTemplate(source, tokenizer.names)
