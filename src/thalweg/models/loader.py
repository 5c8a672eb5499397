"""From a path to a model's facts, its weights, and a report of what was loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.errors import CheckpointError
from thalweg.layers.weights import Weights
from thalweg.models.binding import Binding, bind
from thalweg.models.gguf_facts import gguf_facts
from thalweg.models.gguf_split import read_gguf
from thalweg.models.hf_config import read_hf_config
from thalweg.models.hf_weights import HFWeights, text_prefix
from thalweg.models.load_report import LoadReport, make_report
from thalweg.models.mapped_source import MappedSource
from thalweg.models.plan import ModelPlan
from thalweg.models.registry import gguf_architecture, hf_architecture
from thalweg.models.safetensors_header import find_tensors
from thalweg.models.source import QUANTIZED
from thalweg.models.weight_reader import WeightReader
from thalweg.models.word_head import settle_word_head

if TYPE_CHECKING:
    from thalweg.config.model import ModelConfig
    from thalweg.models.source import TensorSource

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes in all, as the file holds them."""


@dataclass(frozen=True, slots=True)
class TokenizerDirectory:
    """The tokenizer's files (`tokenizer.json`, `tokenizer_config.json`, ...) are in `path`."""

    path: Path


@dataclass(frozen=True, slots=True)
class TokenizerMetadata:
    """The tokenizer is in a GGUF file's metadata (`tokenizer.*`): strings, numbers, lists."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint whose headers were read and found to fit; its data is still on disk."""

    path: Path
    plan: ModelPlan
    tokenizer: TokenizerDirectory | TokenizerMetadata
    report: LoadReport
    _source: TensorSource
    _binding: Binding

    @property
    def config(self) -> ModelConfig:
        return self.plan.config

    def weights(self, progress: Progress | None = None) -> Weights:
        """The canonical weights, each read when it is asked for.

        They come in the stored dtype, quantised ones as float32, and may be views of the mapped
        files: copy before writing. `progress` hears of each stored tensor when it is first read.
        """
        return Weights(WeightReader(self._source, self._binding, progress=progress).read)


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A Hugging Face directory of safetensors, or a GGUF file (of several: the first part).

    Reads headers only (and the two word matrices where a config ties two stored ones). Raises
    `CheckpointError` for anything that is missing, damaged, contradictory or not implemented.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    if path.is_dir():
        return _open_directory(path)
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path} is one file of a checkpoint: name its directory")
    return _open_gguf(path)


def _open_directory(path: Path) -> Checkpoint:
    hf = read_hf_config(path)
    architecture = hf_architecture(hf)
    config = architecture.describe(hf)
    source = MappedSource(find_tensors(path))
    entries = source.entries()
    prefix = text_prefix(entries)
    if not any(name.startswith("mtp.") for name in entries):
        config = replace(config, mtp_layers=())  # Of a head in part, the missing part is named.
    head = settle_word_head(source, f"{prefix}embed_tokens.weight", tied=config.tie_word_embeddings)
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
    return Checkpoint(path, plan, TokenizerDirectory(path), report, source, binding)


def _open_gguf(path: Path) -> Checkpoint:
    header = read_gguf(path)
    name = header.metadata.get("general.architecture")
    architecture = gguf_architecture(name)
    source = MappedSource(header.tensors)
    entries = source.entries()
    config = architecture.describe(gguf_facts(str(name), header.metadata, header.tensors))
    plan = ModelPlan.of(config)
    binding = bind(plan, architecture.weight_map(config), entries=entries)
    num_quantized = sum(info.dtype_name in QUANTIZED for info in binding.used.values())
    notes = (f"dequantised to float32: {num_quantized} tensors",) if num_quantized else ()
    report = make_report(f"{name} (GGUF)", binding, notes=notes)
    tokenizer = TokenizerMetadata(
        {k: v for k, v in header.metadata.items() if k.startswith("tokenizer.")}
    )
    return Checkpoint(path, plan, tokenizer, report, source, binding)
