from __future__ import annotations

import gguf
import pytest
import torch

from op_cases import randn
from thalweg.config.engine import QUANTIZE
from thalweg.ops import extension
from thalweg.ops.linear.quantise import quantised
from thalweg.ops.weight import Matrix


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", QUANTIZE)
def test_blocks_are_those_of_gguf_and_are_packed_as_they_are(kind: str, dtype: torch.dtype) -> None:
    weight = randn(3, 40, 96, dtype=torch.float32).to(dtype)
    weight[1, 3, 32:64] = 0
    rounded = quantised(weight, kind)
    data = gguf.quantize(weight.float().numpy(), gguf.GGMLQuantizationType[QUANTIZE[kind]])
    expected = torch.from_numpy(gguf.dequantize(data, gguf.GGMLQuantizationType[QUANTIZE[kind]]))
    assert rounded.shape == (3, 40, 96) and torch.equal(rounded.dense(), expected)
    for expert in Matrix((rounded,), torch.float32, torch.device("cpu")).unbind():
        assert extension.packed(expert).format == kind
