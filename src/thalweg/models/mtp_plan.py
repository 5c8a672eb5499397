"""What becomes of a checkpoint's multi-token-prediction head: it is loaded where it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thalweg.errors import ConfigError
from thalweg.models.load_report import make_report
from thalweg.models.plan import ModelPlan

if TYPE_CHECKING:
    from thalweg.config import EngineConfig
    from thalweg.models.headers import Headers


def settle_mtp(plan: ModelPlan, config: EngineConfig) -> ModelPlan:
    """With the head that `speculate = "mtp"` asks for, or `auto` takes where it can; else without
    one. Raises `ConfigError` if `mtp` is asked for and
    the model has none, or none that is implemented."""
    num_layers = len(plan.config.mtp_layers)
    if config.speculate == "auto" and num_layers == 1:
        return plan
    if config.speculate != "mtp":
        return ModelPlan.of(replace(plan.config, mtp_layers=()))
    if num_layers == 0:
        raise ConfigError(
            "speculate = 'mtp' is not available: the model has no multi-token-prediction head"
        )
    if num_layers > 1:
        raise ConfigError(
            f"speculate = 'mtp' is not available: the model's head has {num_layers} layers, "
            "and only heads of one are implemented"
        )
    return plan


def auto_drafter(plan: ModelPlan) -> str:
    """Which drafter `auto` is for a model as its files describe it, and why."""
    match len(plan.config.mtp_layers):
        case 0:
            return "lookup: the model has no multi-token-prediction head"
        case 1:
            return "mtp: the model has a multi-token-prediction head"
        case count:
            return f"lookup: the model's multi-token-prediction head has {count} layers, not one"


def settle_mtp_weights(headers: Headers, config: EngineConfig) -> Headers:
    """The same for a checkpoint: what is not used is left out, and reported so."""
    plan = settle_mtp(headers.plan, config)
    unused = {w.name for w in headers.plan.weights} - {w.name for w in plan.weights}
    if not unused:
        return headers
    old = headers.binding
    weights = {name: bound for name, bound in old.weights.items() if name not in unused}
    sources = {s.name for bound in weights.values() for s in bound.recipe.sources}
    left_out = tuple(name for name in old.used if name not in sources)
    binding = replace(
        old,
        weights=weights,
        used={name: info for name, info in old.used.items() if name in sources},
        skipped={**old.skipped, "the multi-token-prediction head: speculate is not mtp": left_out},
    )
    report = make_report(headers.report.architecture, binding, notes=headers.report.notes)
    return replace(headers, plan=plan, binding=binding, report=report)
