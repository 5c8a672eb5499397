"""Times an engine at work on random tokens: the whole step, scheduling and sampling included."""

from __future__ import annotations

import time
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from thalweg.config import SamplingParams
from thalweg.engine.admission import admit
from thalweg.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thalweg.engine.loading import LoadedEngine
    from thalweg.engine.outputs import RequestOutput

Context = tuple[int, ...]
"""Token ids that a measurement begins after, known to the prefix cache."""


class Workbench:
    """Measures an idle engine, and leaves it idle. The tokens depend on `seed` alone, so that a
    second one with the same seed measures prompts that the prefix cache knows."""

    def __init__(self, loaded: LoadedEngine, *, seed: int = 0) -> None:
        self._loaded = loaded
        self._random = Random(seed)
        self._ids = count()

    def contexts(self, num_seqs: int, depth: int) -> list[Context]:
        """`num_seqs` different beginnings of `depth` tokens each, computed now."""
        contexts = [self._tokens(depth) for _ in range(num_seqs)]
        return self.extended(contexts, 0)

    def extended(self, contexts: Sequence[Context], num_tokens: int) -> list[Context]:
        """The same, each `num_tokens` longer, computed now."""
        longer = [context + self._tokens(num_tokens) for context in contexts]
        if any(longer):
            self._answer([context + self._tokens(1) for context in longer])
        return longer

    def time_prompts(self, contexts: Sequence[Context], num_tokens: int) -> float:
        """Seconds until each context, continued by a prompt of `num_tokens`, has an answer's first
        token. `ConfigError` if a context is not in the cache as a whole."""
        prompts = [context + self._tokens(num_tokens) for context in contexts]
        start = time.perf_counter()
        outputs = self._answer(prompts)
        seconds = time.perf_counter() - start
        for context, output in zip(contexts, outputs, strict=True):
            if output.num_cached_tokens != len(context):
                raise ConfigError(
                    f"of {len(context)} tokens before the prompt only {output.num_cached_tokens} "
                    f"are in the prefix cache ({output.cache_miss}): use a multiple of the block "
                    "size and enough cache_memory"
                )
        return seconds

    def time_generation(self, contexts: Sequence[Context], num_tokens: int) -> float:
        """Seconds for `num_tokens` steps in which each of the contexts gets a token.
        `ConfigError` if they cannot all run at once."""
        engine = self._loaded.engine
        # Those that begin first go on while the others begin; who cannot begin ends this, too.
        spare = len(contexts) + sum(map(len, contexts)) // 64
        most = 1 + num_tokens + spare
        ids = [self._add(context + self._tokens(1), max_tokens=most) for context in contexts]
        try:
            begun: set[str] = set()
            while len(begun) < len(ids):
                begun |= {delta.request_id for delta in engine.step().deltas}
            start = time.perf_counter()
            num_made = sum(len(engine.step().deltas) for _ in range(num_tokens))
            seconds = time.perf_counter() - start
        finally:
            for request_id in ids:
                if engine.is_underway(request_id):
                    engine.cancel(request_id)
        if num_made != num_tokens * len(ids):
            raise ConfigError(
                f"{len(ids)} sequences of {len(contexts[0]) + num_tokens} tokens cannot run at "
                f"once: at most {self._loaded.caches.max_num_seqs} can, and cache_memory and "
                "max_model_len must have room for all"
            )
        return seconds

    def _answer(self, prompts: Sequence[Context]) -> list[RequestOutput]:
        """One token to each."""
        ids = [self._add(prompt, max_tokens=1) for prompt in prompts]
        outputs: dict[str, RequestOutput] = {}
        while len(outputs) < len(ids):
            outputs |= {output.request_id: output for output in self._loaded.engine.step().finished}
        return [outputs[request_id] for request_id in ids]

    def _add(self, prompt: Context, *, max_tokens: int) -> str:
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        request_id = f"workbench-{next(self._ids)}"
        request = admit(request_id, prompt, params, limits=self._loaded.limits)
        self._loaded.engine.add_request(request)
        return request_id

    def _tokens(self, num_tokens: int) -> Context:
        size = self._loaded.limits.vocab_size
        return tuple(self._random.randrange(size) for _ in range(num_tokens))
