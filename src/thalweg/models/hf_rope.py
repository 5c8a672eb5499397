"""The rotary embedding of a Hugging Face config: `rope_parameters`, or the flat keys before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from thalweg.config.model import RopeConfig

if TYPE_CHECKING:
    from thalweg.models.hf_fields import Fields

Scaling = Literal["default", "linear", "llama3", "yarn"]

REQUIRED: dict[Scaling, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
YARN_OPTIONS = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")


def read_rope(text: Fields, head_dim: int, *, default_fraction: float = 1.0) -> RopeConfig:
    """`default_fraction`: the part of a head that is rotated where the config does not say.

    As in transformers, `rope_scaling` stands before `rope_parameters`, and a key inside either
    before the same key beside it.
    """
    rope = _rope_section(text)
    theta = rope.number("rope_theta", text.number("rope_theta", 10_000.0))
    outer_fraction = text.number("partial_rotary_factor", default_fraction)
    fraction = rope.number("partial_rotary_factor", outer_fraction)
    rotary_dim = int(head_dim * fraction)
    if rotary_dim < 2 or rotary_dim > head_dim or rotary_dim % 2:
        raise rope.error(
            "partial_rotary_factor",
            f"an even number of rotated channels, not {rotary_dim} of {head_dim}",
        )
    kind = _scaling(rope)
    return RopeConfig(rotary_dim, theta, kind, tuple(sorted(_params(rope, text, kind=kind))))


def _rope_section(text: Fields) -> Fields:
    names = [name for name in ("rope_scaling", "rope_parameters") if text.get(name)]
    rope = (text.section(names[0]) if names else None) or text.nothing("rope_parameters")
    if any(isinstance(rope.get(name), dict) for name in rope.unread()):
        raise text.error(names[0], "one set of parameters for all layers")
    return rope


def _scaling(rope: Fields) -> Scaling:
    name = "rope_type" if "rope_type" in rope else "type"
    kind = rope.string(name, "default")
    for known in get_args(Scaling):
        if kind == known:
            return known
    raise rope.error(name, "only " + ", ".join(get_args(Scaling)))


def _params(rope: Fields, text: Fields, *, kind: Scaling) -> list[tuple[str, float]]:
    params = [(name, rope.number(name)) for name in REQUIRED[kind]]
    if kind in ("llama3", "yarn"):
        # Phi-3 writes the pretrained length beside the rope parameters, and then it counts.
        name = "original_max_position_embeddings"
        length = rope.number(name, text.number("max_position_embeddings"))
        params.append((name, text.number(name, length)))
    if kind == "yarn":
        params += [(name, rope.number(name)) for name in YARN_OPTIONS if name in rope]
        params.append(("truncate", float(rope.flag("truncate", default=True))))
    return params
