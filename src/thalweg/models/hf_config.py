"""`config.json` and `generation_config.json` of a Hugging Face directory. Torch-free.

Finds the language model's fields wherever they are (flat, or nested as `text_config`) and refuses
what no architecture of ours could honour. What the fields mean is said in `*_plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.errors import CheckpointError
from thalweg.models.hf_fields import Fields, read_json_object

if TYPE_CHECKING:
    from pathlib import Path

GENERATIVE = ("ForCausalLM", "ForConditionalGeneration", "Model")
"""Endings of the class names whose weights are a language model's; others have another head."""

ABOUT_OTHER_THINGS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "auto_map",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "full_attention_interval",
        "initializer_range",
        "intermediate_size",
        "is_llama_config",
        "mamba_ssm_dtype",
        "model_type",
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "rope_interleaved",
        "router_aux_loss_coef",
        "tie_word_embeddings",
        "torch_dtype",
        "transformers_version",
        "transformers.js_config",
        "use_cache",
    }
)
"""Not worth a word when unread: training, defaults of a saved config, what transformers ignores."""

LIMITS = {
    "num_hidden_layers": 1 << 12,
    "mtp_num_hidden_layers": 1 << 12,
    "num_experts": 1 << 14,
    "num_local_experts": 1 << 14,
}
"""A plan is made of so many parts before the tensors can contradict a damaged file."""


@dataclass(frozen=True, slots=True)
class HFConfig:
    model_type: str
    """Of the language model: `qwen3_5_text` where the whole is `qwen3_5`."""
    outer_model_type: str
    text: Fields
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]

    def unused_fields(self) -> tuple[str, ...]:
        """Fields of the language model that nothing has read and that might mean something."""
        return tuple(name for name in self.text.unread() if name not in ABOUT_OTHER_THINGS)


def read_hf_config(directory: Path) -> HFConfig:
    if not (directory / "config.json").is_file():
        found = sorted(directory.glob("*.gguf"))
        hint = f"name the file {found[0].name}" if found else "not a Hugging Face checkpoint"
        raise CheckpointError(f"{directory} has no config.json: {hint}")
    values = read_json_object(directory / "config.json")
    outer = Fields(values, "config.json")
    text = outer.section("text_config") or outer
    for fields in (outer, text):
        _refuse_quantization(fields)
    _refuse_other_heads(outer)
    for name, most in LIMITS.items():
        text.at_most(name, most)
    outer_type = outer.string("model_type")
    # The class around a vision model ties by its own flag and does not look inside.
    tie = outer.flag("tie_word_embeddings", default=text.flag("tie_word_embeddings", default=False))
    return HFConfig(
        model_type=text.string("model_type", outer_type),
        outer_model_type=outer_type,
        text=text,
        tie_word_embeddings=tie,
        eos_token_ids=_eos_token_ids(directory, outer, text=text),
    )


def _refuse_quantization(fields: Fields) -> None:
    for name in ("quantization_config", "compression_config", "quantization"):
        if section := fields.section(name):
            method = section.get("quant_method") or "of an unnamed method"
            raise CheckpointError(
                f"config.json: {name} says the weights are quantised ({method}): "
                "only F64, F32, BF16 and F16 weights are supported"
            )


def _refuse_other_heads(outer: Fields) -> None:
    names = outer.strings("architectures")
    if names and not any(name.endswith(GENERATIVE) for name in names):
        raise outer.error("architectures", "a class ending in " + ", ".join(GENERATIVE))


def _eos_token_ids(directory: Path, outer: Fields, *, text: Fields) -> tuple[int, ...]:
    """As in transformers: generation_config.json decides where it names any."""
    path = directory / "generation_config.json"
    generation = Fields(read_json_object(path) if path.is_file() else {}, path.name)
    return next(
        (ids for fields in (generation, text, outer) if (ids := fields.integers("eos_token_id"))),
        (),
    )
