"""Muon for the weight matrices of the layers, AdamW for everything else.

Muon replaces a matrix's momentum by the nearest orthogonal matrix, found by the Newton-Schulz
iteration with Keller Jordan's coefficients (https://kellerjordan.github.io/posts/muon/). Matrices
of one shape are stacked, so that a step is a few batched products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates at the plateau."""

    muon: float = 0.02
    adam: float = 0.003
    momentum: float = 0.95
    weight_decay: float = 0.01  # of the matrices, times the rate


def orthogonalise(x: Tensor) -> Tensor:
    """`[N, rows, columns]`: singular values moved to about 1."""
    a, b, c = _COEFFICIENTS
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(_ITERATIONS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, b * gram + c * gram @ gram, x, beta=a)
    return (x.transpose(1, 2) if tall else x).float()


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether Muon has it: matrices inside layers, but for the two tiny gate projections."""
    tiny = name.endswith(("in_proj_a.weight", "in_proj_b.weight"))
    return parameter.dim() == 2 and "embed_tokens" not in name and not tiny


class Optimiser:
    def __init__(self, model: nn.Module, rates: Rates) -> None:
        self.rates = rates
        self._matrices: dict[torch.Size, list[nn.Parameter]] = {}
        others = []
        for name, parameter in model.named_parameters():
            if is_matrix(name, parameter):
                self._matrices.setdefault(parameter.shape, []).append(parameter)
            else:
                others.append(parameter)
        self._momenta = {s: torch.zeros(len(ps), *s) for s, ps in self._matrices.items()}
        self._others = others
        self._adam = torch.optim.AdamW(
            others, lr=rates.adam, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0
        )

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """One step at `scale` times the plateau's rates; gradients are cleared."""
        rates = self.rates
        for shape, parameters in self._matrices.items():
            grads = torch.stack([p.grad for p in parameters if p.grad is not None])
            momentum = self._momenta[shape]
            momentum.lerp_(grads, 1 - rates.momentum)
            update = orthogonalise(grads.lerp_(momentum, rates.momentum))
            rate = rates.muon * scale
            stretch = max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(parameters, update, strict=True):
                parameter.mul_(1 - rate * rates.weight_decay).add_(change, alpha=-rate * stretch)
                parameter.grad = None
        nn.utils.clip_grad_norm_(self._others, 1.0)
        for group in self._adam.param_groups:
            group["lr"] = rates.adam * scale
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        return {"momenta": list(self._momenta.values()), "adam": self._adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for mine, saved in zip(self._momenta.values(), state["momenta"], strict=True):
            mine.copy_(saved)
        self._adam.load_state_dict(state["adam"])
