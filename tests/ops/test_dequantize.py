"""Dequantised blocks are those of the `gguf` package, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from any_blocks import SCALES, any_blocks
from thalweg.models.mapped_source import DTYPES, MappedSource
from thalweg.models.source import PLAIN, QUANTIZED, StoredTensor, TensorInfo
from thalweg.ops.dequantize import BLOCK_TYPES, CHUNK_VALUES, dequantize
from thalweg.ops.weight import values_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def same_bits(mine: NDArray[np.float32], theirs: NDArray[np.float32]) -> bool:
    return np.array_equal(mine.view(np.int32), theirs.ravel().view(np.int32))


def dequantized(
    blocks: NDArray[np.uint8], name: str, *, num_threads: int = 1
) -> NDArray[np.float32]:
    out = np.full(len(blocks) * BLOCK_TYPES[name].num_values, np.nan, np.float32)
    dequantize(blocks.reshape(-1), BLOCK_TYPES[name], out=out, num_threads=num_threads)
    return out


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_any_blocks(name: str) -> None:
    kind = BLOCK_TYPES[name]
    ggml_type = gguf.GGMLQuantizationType[name]
    assert gguf.GGML_QUANT_SIZES[ggml_type] == (kind.num_values, kind.nbytes)
    for num_blocks in (3, CHUNK_VALUES // kind.num_values + 5):
        blocks = any_blocks(name, num_blocks)
        for num_threads in (1, 3):
            values = dequantized(blocks, name, num_threads=num_threads)
            assert same_bits(values, gguf.dequantize(blocks, ggml_type))


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_infinite_scales_are_infinite_or_no_number(name: str) -> None:
    blocks = any_blocks(name, 4)
    blocks[:, SCALES[name][0] : SCALES[name][0] + 2] = [0, 0x7C]
    values = dequantized(blocks, name)
    with np.errstate(invalid="ignore"):
        wanted = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).ravel()
    assert np.array_equal(values, wanted, equal_nan=True)


@pytest.mark.parametrize("offset", [0, 32, 33])
@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_from_a_file(tmp_path: Path, name: str, offset: int) -> None:
    kind = BLOCK_TYPES[name]
    blocks = any_blocks(name, 6)
    path = tmp_path / "data"
    path.write_bytes(bytes(offset) + blocks.tobytes())
    info = TensorInfo((3, 2 * kind.num_values), name, blocks.nbytes)
    tensor = values_of(MappedSource({"x": StoredTensor(info, path, offset)}).read("x"))
    assert tensor.shape == info.shape
    assert same_bits(
        tensor.flatten().numpy(), gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
    )


def test_every_readable_type_can_be_read() -> None:
    assert BLOCK_TYPES.keys() == QUANTIZED
    assert DTYPES.keys() == PLAIN
