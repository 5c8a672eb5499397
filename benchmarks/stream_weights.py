"""How fast linear layers read their weights, beside a loop that does nothing but read.

    python benchmarks/stream_weights.py --threads 2

One row against the projections of Qwen3.5-0.8B, enough copies that no cache holds them. Reading
and multiplying take turns, and a line has the medians and their ratio. What Python needs around a
product is not part of it: `engine_overhead.py` measures that. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

from thalweg.ops import extension, linear
from thalweg.ops.linear.quantise import quantised
from thalweg.ops.registry import KernelSelector
from thalweg.ops.weight import Matrix

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((7168, 1024), (1024, 3584), (8224, 1024), (1024, 2048), (5120, 1024))
"""[N, K]: gate and up, down, GDN in, GDN and attention out, attention in."""
KINDS = ("bf16", "q8", "q4")


def weight(kind: str, n: int, k: int) -> Matrix:
    values = torch.randn(n, k) / k**0.5
    stored = values.bfloat16() if kind == "bf16" else quantised(values, kind)
    return Matrix((stored,), torch.float32, values.device)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(kind: str, *, megabytes: int, repeats: int) -> tuple[float, float]:
    """-> GB/s of reading, GB/s of products; medians."""
    kernels, total = extension.kernels(), 0
    products: list[tuple[Any, int, int]] = []
    x, y = torch.randn(1, max(k for _, k in SHAPES)), torch.empty(1, max(n for n, _ in SHAPES))
    while total < megabytes << 20:
        for n, k in SHAPES:
            w = weight(kind, n, k)
            call = KernelSelector("cpu").bind(linear.OP, linear.LinearProblem(w))
            products.append((extension.object_of(call), k, n))
            total += extension.packed(w).nbytes
    memory = torch.ones(total, dtype=torch.uint8)

    def multiply() -> None:
        for product, k, n in products:
            product.run(x.data_ptr(), k, 1, y.data_ptr(), n)

    read_times, multiply_times = [], []
    for _ in range(repeats + 1):  # the first of each warms up
        read_times.append(seconds(lambda: kernels.read_memory(memory.data_ptr(), total)))
        multiply_times.append(seconds(multiply))
    return (
        total / statistics.median(read_times[1:]) / 1e9,
        total / statistics.median(multiply_times[1:]) / 1e9,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=extension.default_threads())
    parser.add_argument("--megabytes", type=int, default=500, help="of weights of each kind")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    extension.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"{extension.kernels().level()}, {options.threads} threads")
    print(f"{'weights':8}{'read GB/s':>12}{'linear GB/s':>13}{'ratio':>8}")
    for kind in KINDS:
        read, product = measure(kind, megabytes=options.megabytes, repeats=options.repeats)
        print(f"{kind:8}{read:12.1f}{product:13.1f}{product / read:8.2f}")


if __name__ == "__main__":
    main()
