"""The two precisions of an op: what it is handed, and what it computes in."""

from __future__ import annotations

import torch

ACCUMULATE = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.float32,
}
"""Storage dtype -> the dtype of sums, exponentials and recurrent state."""
