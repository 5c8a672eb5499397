"""What a checkpoint's config and headers say, checked against each other. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.errors import CheckpointError
from thalweg.models.binding import Binding, bind
from thalweg.models.gguf_facts import gguf_facts
from thalweg.models.gguf_split import read_gguf
from thalweg.models.hf_config import read_hf_config
from thalweg.models.hf_weights import HFWeights, text_prefix
from thalweg.models.load_report import LoadReport, make_report
from thalweg.models.plan import ModelPlan
from thalweg.models.registry import gguf_architecture, hf_architecture
from thalweg.models.safetensors_header import INDEX, SINGLE, find_tensors
from thalweg.models.source import StoredTensor
from thalweg.models.word_head import settle_word_head

if TYPE_CHECKING:
    from thalweg.models.source import TensorInfo

Tensors = Mapping[str, StoredTensor]
AreEqual = Callable[[Tensors, str, str], bool]
"""Whether two stored tensors are the same matrix."""


@dataclass(frozen=True, slots=True)
class TokenizerDirectory:
    """The tokenizer's files (`tokenizer.json`, `tokenizer_config.json`, ...) are in `path`."""

    path: Path


@dataclass(frozen=True, slots=True)
class TokenizerMetadata:
    """The tokenizer is in a GGUF file's metadata (`tokenizer.*`): strings, numbers, lists."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    path: Path
    plan: ModelPlan
    tokenizer: TokenizerDirectory | TokenizerMetadata
    report: LoadReport
    tensors: Tensors
    """Every stored tensor, used or not."""
    binding: Binding


def read_config(path: Path) -> ModelPlan | None:
    """The plan of a Hugging Face directory that has a config and no weights; None for any other
    path."""
    if not path.is_dir() or (path / SINGLE).exists() or (path / INDEX).exists():
        return None
    hf = read_hf_config(path)
    return ModelPlan.of(hf_architecture(hf).describe(hf))


def read_headers(path: str | Path, are_equal: AreEqual | None = None) -> Headers:
    """A Hugging Face directory of safetensors, or a GGUF file (of several: the first part).

    Where a config ties two matrices and the file has both, `are_equal` reads them; without it they
    are taken to be one. Raises `CheckpointError` for anything that is missing, damaged,
    contradictory or not implemented.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    if path.is_dir():
        return _read_directory(path, are_equal or (lambda tensors, one, other: True))
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path} is one file of a checkpoint: name its directory")
    return _read_gguf(path)


def _read_directory(path: Path, are_equal: AreEqual) -> Headers:
    hf = read_hf_config(path)
    architecture = hf_architecture(hf)
    config = architecture.describe(hf)
    tensors = find_tensors(path)
    entries = _entries(tensors)
    prefix = text_prefix(entries)
    if not any(name.startswith("mtp.") for name in entries):
        config = replace(config, mtp_layers=())  # Of a head in part, the missing part is named.
    embedding = f"{prefix}embed_tokens.weight"
    head = settle_word_head(
        entries,
        embedding,
        tied=config.tie_word_embeddings,
        are_equal=lambda one, other: are_equal(tensors, one, other),
    )
    plan = ModelPlan.of(replace(config, tie_word_embeddings=head.tied))
    weight_map = HFWeights(
        prefix,
        fused_gdn=architecture.fused_gdn,
        embedding_from_head=head.embedding_from_head,
        head_is_repeated=head.tied,
    )
    binding = bind(plan, weight_map, entries=entries)
    notes = [head.note] if head.note else []
    if unused := hf.unused_fields():
        notes.append(f"config fields that nothing uses: {', '.join(unused)}")
    report = make_report(config.model_type, binding, notes=tuple(notes))
    return Headers(path, plan, TokenizerDirectory(path), report, tensors, binding)


def _read_gguf(path: Path) -> Headers:
    header = read_gguf(path)
    name = header.metadata.get("general.architecture")
    architecture = gguf_architecture(name)
    config = architecture.describe(gguf_facts(str(name), header.metadata, header.tensors))
    plan = ModelPlan.of(config)
    binding = bind(plan, architecture.weight_map(config), entries=_entries(header.tensors))
    report = make_report(f"{name} (GGUF)", binding, notes=())
    tokenizer = TokenizerMetadata(
        {k: v for k, v in header.metadata.items() if k.startswith("tokenizer.")}
    )
    return Headers(path, plan, tokenizer, report, header.tensors, binding)


def _entries(tensors: Tensors) -> dict[str, TensorInfo]:
    return {name: tensor.info for name, tensor in tensors.items()}
