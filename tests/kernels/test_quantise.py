from __future__ import annotations

import gguf
import pytest
import torch

from op_cases import randn
from thalweg.ops import extension
from thalweg.ops.linear.quantise import KINDS, quantised

TYPES = {"q8": gguf.GGMLQuantizationType.Q8_0, "q4": gguf.GGMLQuantizationType.Q4_0}


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_gguf_and_are_kept_in_few_bits(kind: str) -> None:
    weight = randn(40, 96, dtype=torch.float32)
    weight[3, 32:64] = 0
    rounded = quantised(weight, kind)
    data = gguf.quantize(weight.numpy(), TYPES[kind])
    expected = torch.from_numpy(gguf.dequantize(data, TYPES[kind]))
    assert torch.equal(rounded, expected)
    assert extension.packed(rounded).format == kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_width_that_no_group_divides_stays_as_it_is(kind: str) -> None:
    weight = randn(5, 33, dtype=torch.bfloat16)
    assert torch.equal(quantised(weight, kind), weight.float())
