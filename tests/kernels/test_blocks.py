"""GGUF's blocks are packed as they are stored: the values of the `gguf` package, bit for bit."""

from __future__ import annotations

from typing import Any

import gguf
import pytest
import torch
from torch import Tensor

from any_blocks import SCALES, any_blocks
from harness import same_bits
from kernel_cases import rounded_activations
from op_cases import randn
from thalweg.models.source import PACKED_AS
from thalweg.ops import extension

FORMATS = PACKED_AS
"""The narrowest that holds every value."""
SOURCES = {name: extension.SOURCES.index(name) for name in FORMATS}
N, K = 70, 768

each_type = pytest.mark.parametrize("name", SCALES)


def stored(name: str, rows: int = N) -> tuple[Tensor, Tensor]:
    """Rows of blocks, and their values."""
    kind = gguf.GGMLQuantizationType[name]
    blocks = any_blocks(name, rows * K // gguf.GGML_QUANT_SIZES[kind][0]).reshape(rows, -1)
    return torch.from_numpy(blocks), torch.from_numpy(gguf.dequantize(blocks, kind))


def packed(*parts: tuple[str, Tensor], groups: Tensor | None = None) -> Any:
    order = 0 if groups is None else groups.data_ptr()
    rows = [(data.data_ptr(), SOURCES[name], len(data), order) for name, data in parts]
    return extension.kernels().Packed(rows, K)


def unpacked(matrix: Any, rows: int) -> Tensor:
    out = torch.full((rows, K), torch.nan)
    ids = torch.arange(rows, dtype=torch.int32)
    extension.kernels().Embedding(matrix).run(ids.data_ptr(), rows, out.data_ptr())
    return out


@each_type
def test_values_are_kept(name: str) -> None:
    blocks, values = stored(name)
    matrix = packed((name, blocks))
    assert matrix.format == FORMATS[name]
    assert same_bits(unpacked(matrix, N), values)


@each_type
def test_groups_of_inputs_in_another_order(name: str) -> None:
    blocks, values = stored(name)
    order = torch.randperm(K // 32, generator=torch.Generator().manual_seed(1)).int()
    wanted = values.view(N, -1, 32)[:, order.long()].reshape(N, K)
    assert same_bits(unpacked(packed((name, blocks), groups=order), N), wanted)


def test_parts_of_one_format_share_panels_and_others_follow() -> None:
    parts = {name: stored(name, 20 + i) for i, name in enumerate(FORMATS)}
    matrix = packed(*((name, blocks) for name, (blocks, _) in parts.items()))
    assert matrix.format == "q4 + q4m + q8 + q5k + q8 + q4k + q5k + q6k"
    together = packed(("Q5_0", parts["Q5_0"][0]), ("Q8_0", parts["Q8_0"][0]))
    assert together.format == "q8"
    values = torch.cat([values for _, values in parts.values()])
    assert same_bits(unpacked(matrix, len(values)), values)
    values = torch.cat([parts["Q5_0"][1], parts["Q8_0"][1]])
    assert same_bits(unpacked(together, len(values)), values)


@each_type
def test_products_are_those_of_the_values(name: str) -> None:
    """On every level, for few rows and for many: the same bits, and close to float64."""
    blocks, values = stored(name)
    matrix, x = packed((name, blocks)), randn(70, K, dtype=torch.float32, seed=1)
    exact = rounded_activations(x) @ values.double().T
    wanted = None
    kernels = extension.kernels()
    for level in kernels.levels():
        kernels.set_level(level)
        product = kernels.Linear(matrix, 0)
        for rows in (70, 1, 2, 3, 4, 7, 12, 13):
            out = torch.full((rows, N), torch.nan)
            product.run(x.data_ptr(), K, rows, out.data_ptr(), N)
            wanted = out if wanted is None else wanted
            assert same_bits(out, wanted[:rows])
    assert wanted is not None and (wanted - exact).norm() <= 2e-6 * exact.norm()
