"""Names and layouts of weights in Hugging Face checkpoints. Torch-free."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from thalweg.config.model import GatedDeltaNetConfig
from thalweg.models.plan import WeightSpec
from thalweg.models.weight_map import Recipe

if TYPE_CHECKING:
    from collections.abc import Collection

PREFIXES = ("model.language_model.", "model.", "language_model.", "")
OUTSIDE_THE_MODEL = ("lm_head.", "mtp.")
"""These have no prefix, whatever the rest of the checkpoint has."""

SKIPPED = (
    (re.compile(r"(model\.)?visual\."), "vision tower: text only"),
    (re.compile(r"(.*\.)?rotary_emb\.inv_freq$"), "rotary frequencies: computed from the config"),
)


def text_prefix(names: Collection[str]) -> str:
    """What stands before the language model's own names, such as `layers.0.`, in a checkpoint."""
    marks = ("embed_tokens.weight", "norm.weight")
    for prefix in PREFIXES:
        if any(prefix + mark in names for mark in marks):
            return prefix
    return "model."


@dataclass(frozen=True, slots=True)
class HFWeights:
    """The layouts of every Hugging Face architecture here.

    Experts may be fused per layer or one tensor each. With `fused_gdn` the input projections of
    gated DeltaNet are two interleaved matrices (qwen3_next) and not four.
    """

    prefix: str
    fused_gdn: bool = False
    embedding_from_head: bool = False
    """Tied, and only `lm_head.weight` was saved."""
    head_is_repeated: bool = False
    """Tied: a stored head equals the embedding."""

    def recipes(self, weight: WeightSpec) -> tuple[Recipe, ...]:
        name, layer = self._stored_name(weight.name), weight.layer
        plain = Recipe.plain(name, weight.shape)
        if name.endswith(".conv1d.weight"):
            channels, width = weight.shape
            return (Recipe.plain(name, (channels, 1, width)),)
        if ".mlp.experts." in name:
            return (plain, _separate_experts(plain.sources[0]))
        if self.fused_gdn and layer and isinstance(layer.mixer, GatedDeltaNetConfig):
            stem, _, part = name.removesuffix(".weight").rpartition(".in_proj_")
            if stem:
                stored = f"{stem}.in_proj_{'qkvz' if part in ('qkv', 'z') else 'ba'}.weight"
                return (interleaved(layer.mixer, part, name=stored, hidden=weight.shape[1]),)
        return (plain,)

    def skip_reason(self, name: str) -> str | None:
        if self.head_is_repeated and name == "lm_head.weight":
            return "equal to the embedding it is tied to"
        return next((reason for pattern, reason in SKIPPED if pattern.match(name)), None)

    def _stored_name(self, name: str) -> str:
        if self.embedding_from_head and name == "embed_tokens.weight":
            return "lm_head.weight"
        return name if name.startswith(OUTSIDE_THE_MODEL) else self.prefix + name


def _separate_experts(fused: WeightSpec) -> Recipe:
    """`experts.E.{gate,up,down}_proj.weight`: expert by expert, gate above up."""
    stem, _, part = fused.name.rpartition(".")
    parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[part]
    num_experts, rows, columns = fused.shape
    sources = tuple(
        WeightSpec(f"{stem}.{expert}.{name}.weight", (rows // len(parts), columns))
        for expert in range(num_experts)
        for name in parts
    )
    return Recipe(sources, change="experts stacked")


def interleaved(gdn: GatedDeltaNetConfig, part: str, *, name: str, hidden: int) -> Recipe:
    """A canonical input projection, `part` of qkv, z, b, a, as rows of a matrix of qkvz or of ba.

    Per key head it has [q | k | v of its value heads | z of them], or [b | a] of them.
    """
    shared = gdn.num_v_heads // gdn.num_k_heads
    value_dim = shared * gdn.head_v_dim
    widths = {"q": gdn.head_k_dim, "k": gdn.head_k_dim, "v": value_dim, "z": value_dim}
    if part in ("b", "a"):
        widths = {"b": shared, "a": shared}
    source = WeightSpec(name, (gdn.num_k_heads * sum(widths.values()), hidden))
    wanted = tuple(list(widths).index(letter) for letter in part)
    rows = partial(_rows_by_field, tuple(widths.values()), wanted, num_groups=gdn.num_k_heads)
    return Recipe((source,), rows, change="heads de-interleaved")


@cache
def _rows_by_field(
    widths: tuple[int, ...], wanted: tuple[int, ...], *, num_groups: int
) -> tuple[int, ...]:
    """Of rows in `num_groups` groups of fields of `widths`: all of a field's rows, group by group,
    for each wanted field."""
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return tuple(
        group * sum(widths) + starts[field] + row
        for field in wanted
        for group in range(num_groups)
        for row in range(widths[field])
    )
