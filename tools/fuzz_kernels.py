"""Random shapes through the compiled kernels for some minutes: the same bits alone and in company,
and close to the reference. Meant for a build with THALWEG_SANITIZE=ON.

    python tools/fuzz_kernels.py [minutes] [seed]
"""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from fuzz_models import fuzz_model
from fuzz_weights import KINDS, same, stored, unit
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.ids import NULL, SKIP
from thalweg.ops import (
    causal_conv1d,
    extension,
    gated_delta_rule,
    linear,
    moe,
    paged_attention,
    rms_norm,
)
from thalweg.ops.dequantize import BLOCK_TYPES
from thalweg.ops.registry import KernelSelector
from thalweg.ops.weight import Matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor


BLOCK_SIZE = 16


def bound(op: Any, problem: Any, kind: str = "cpu") -> Any:
    return KernelSelector(kind).bind(op, problem)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> None:
    bound = tolerance * (1 + b.abs().max())
    assert bool(((a - b).abs() <= bound).all()), float((a - b).abs().max())


def fuzz_linear(rng: random.Random) -> None:
    kind = rng.choice(KINDS)
    n, k = rng.randint(1, 200), unit(kind) * rng.randint(1, 700 // unit(kind))
    weight = Matrix((stored((n, k), kind, rng),), torch.float32, torch.device("cpu"))
    problem = linear.LinearProblem(weight, torch.randn(n) if rng.random() < 0.5 else None)
    x = torch.randn(rng.randint(1, 40), k)
    call = bound(linear.OP, problem)
    whole, i = call(x), rng.randrange(len(x))
    same(call(x[i : i + 1]), whole[i : i + 1])
    rounds = kind in BLOCK_TYPES  # activations, to 8 bits
    close(whole, bound(linear.OP, problem, "reference")(x), 2e-2 if rounds else 1e-4)


def fuzz_norm(rng: random.Random) -> None:
    problem = rms_norm.RMSNormProblem(torch.randn(rng.randint(1, 300)), 1e-6, True)
    x = torch.randn(rng.randint(1, 30), rng.randint(1, 4), len(problem.weight))
    call = bound(rms_norm.OP, problem)
    same(call(x[-1:]), call(x)[-1:])
    close(call(x), bound(rms_norm.OP, problem, "reference")(x))


def batches(rng: random.Random, num_tokens: int) -> Iterator[tuple[slice, ForwardBatch]]:
    """One sequence in chunks of random length; its state is in slot 1."""
    blocks = list(range(1, num_tokens // BLOCK_SIZE + 2))
    start = 0
    while start < num_tokens:
        n = min(num_tokens - start, rng.choice([1, 2, rng.randint(1, 200)]))
        seq = SequenceInput([0] * n, start, blocks, 1 if start else NULL, [SKIP] * (n - 1) + [1])
        yield (
            slice(start, start + n),
            ForwardBatch.ragged([seq], [n - 1], block_size=BLOCK_SIZE),
        )
        start += n


def fuzz_recurrence(rng: random.Random) -> None:
    heads, group = rng.randint(1, 3), rng.randint(1, 3)
    k_dim, v_dim, taps = rng.randint(1, 70), rng.randint(1, 70), rng.randint(2, 5)
    num, wide = rng.randint(1, 90), heads * group
    problem = gated_delta_rule.GatedDeltaRuleProblem(heads, wide, k_dim, v_dim, torch.float32)
    inputs = (
        torch.randn(num, heads, k_dim),
        torch.randn(num, heads, k_dim),
        torch.randn(num, wide, v_dim),
        -torch.rand(num, wide),
        torch.rand(num, wide),
    )
    conv = causal_conv1d.CausalConv1dProblem(torch.randn(rng.randint(1, 300), taps))
    x = torch.randn(num, len(conv.weight))

    def run(seed: int, kind: str) -> tuple[Tensor, ...]:
        rule, window = (
            bound(gated_delta_rule.OP, problem, kind),
            bound(causal_conv1d.OP, conv, kind),
        )
        ssm, past = torch.zeros(2, wide, k_dim, v_dim), torch.zeros(2, taps - 1, x.shape[1])
        outs = [
            (rule(*(p[part] for p in inputs), ssm, batch), window(x[part], past, batch))
            for part, batch in batches(random.Random(seed), num)
        ]
        return (*(torch.cat(o) for o in zip(*outs, strict=True)), ssm, past)

    first, second, slow = run(1, "cpu"), run(2, "cpu"), run(3, "reference")
    for a, b, c in zip(first, second, slow, strict=True):
        same(a, b)
        close(a, c)


def fuzz_attention(rng: random.Random) -> None:
    kv_heads, group, dim = rng.randint(1, 3), rng.randint(1, 16), rng.randint(1, 140)
    num = rng.randint(1, 400)
    problem = paged_attention.PagedAttentionProblem(
        kv_heads * group, kv_heads, dim, BLOCK_SIZE, torch.float32
    )
    q, k, v = (torch.randn(num, h, dim) for h in (kv_heads * group, kv_heads, kv_heads))
    gate = torch.randn_like(q) if rng.random() < 0.5 else None

    def run(seed: int) -> Tensor:
        call = bound(paged_attention.OP, problem)
        rows = (num // BLOCK_SIZE + 2) * BLOCK_SIZE
        caches = [torch.full((rows, kv_heads, dim), torch.nan) for _ in range(2)]
        outs = []
        for part, batch in batches(random.Random(seed), num):
            each = paged_attention.AttentionInputs(
                q[part], k[part], v[part], None if gate is None else gate[part]
            )
            outs.append(call(each, *caches, batch))
        return torch.cat(outs)

    same(run(1), run(2))


def fuzz_moe(rng: random.Random) -> None:
    experts, hidden, inner = rng.randint(1, 12), rng.randint(1, 80), rng.randint(1, 80)
    problem = moe.MoEProblem(
        router=torch.randn(experts, hidden),
        gate_up=torch.randn(experts, 2 * inner, hidden) / hidden**0.5,
        down=torch.randn(experts, hidden, inner) / inner**0.5,
        top_k=rng.randint(1, experts),
        norm_topk_prob=rng.random() < 0.5,
    )
    x = torch.randn(rng.randint(1, 30), hidden)
    call = bound(moe.OP, problem)
    same(call(x[-1:]), call(x)[-1:])
    close(call(x), bound(moe.OP, problem, "reference")(x))


FUZZERS: tuple[Callable[[random.Random], None], ...] = (
    fuzz_linear,
    fuzz_norm,
    fuzz_recurrence,
    fuzz_attention,
    fuzz_moe,
    fuzz_model,
)


def main(minutes: float, seed: int) -> None:
    end, count = time.monotonic() + 60 * minutes, 0
    kernels = extension.kernels()
    while time.monotonic() < end:
        rng = random.Random(seed + count)
        torch.manual_seed(seed + count)
        kernels.set_num_threads(rng.randint(1, 4))
        kernels.set_level(rng.choice(kernels.levels()))
        fuzzer = rng.choice(FUZZERS)
        try:
            fuzzer(rng)
        except AssertionError:
            print(f"{fuzzer.__name__}, seed {seed + count}")
            raise
        count += 1
    print(f"{count} cases, none failed")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        float(arguments[0]) if arguments else 5.0,
        int(arguments[1]) if len(arguments) > 1 else 0,
    )
