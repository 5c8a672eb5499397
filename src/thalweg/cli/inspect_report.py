"""What `thalweg inspect` tells, as data and as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING

from thalweg.config.model import AttentionConfig, GatedDeltaNetConfig, MoEConfig
from thalweg.engine.loading import load_text
from thalweg.errors import CheckpointError
from thalweg.models.loader import TokenizerMetadata, open_checkpoint
from thalweg.models.source import PACKED_AS, WIDENED
from thalweg.text.template_features import TemplateFeatures

if TYPE_CHECKING:
    from thalweg.config import ModelConfig
    from thalweg.models.load_report import TypeTotal
    from thalweg.models.loader import Checkpoint


@dataclass(frozen=True, slots=True)
class Sizes:
    num_parameters: int
    nbytes: int
    """Of the tensors that are used, in the file."""
    num_layers: int
    num_attention_layers: int
    num_gated_delta_net_layers: int
    num_mtp_layers: int
    hidden_size: int
    num_experts: int
    """In a layer; 0: none."""
    vocab_size: int
    max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class TensorType:
    dtype_name: str
    num_tensors: int
    nbytes: int
    packed_as: str | None
    """The format the compiled kernels keep its values in, unchanged. None: not quantised; kept in
    its own format or a narrower one that holds all values."""
    is_widened: bool
    """Codes take a byte there, and fewer bits in the file."""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    kind: str
    vocab_size: int
    bos: str | None
    ends: tuple[str, ...]
    """Tokens that end an answer."""


@dataclass(frozen=True, slots=True)
class Inspection:
    path: str
    architecture: str
    sizes: Sizes
    tensor_types: tuple[TensorType, ...]
    conversions: tuple[str, ...]
    """What is done to weights that are stored in another form than they are used in."""
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    tokenizer: TokenizerFacts | None
    template: TemplateFeatures | None
    text_fault: str | None
    """Why tokenizer or template cannot be used; without them token ids can still be."""

    def text(self) -> str:
        s = self.sizes
        layers = f"{s.num_layers} layers: {s.num_attention_layers} attention"
        if s.num_gated_delta_net_layers:
            layers += f", {s.num_gated_delta_net_layers} gated DeltaNet"
        if s.num_mtp_layers:
            layers += f"; {s.num_mtp_layers} for multi-token prediction"
        rows = [
            ("architecture", self.architecture),
            ("parameters", f"{_short(s.num_parameters)} in {s.nbytes / 1e6:.1f} MB"),
            ("layers", layers),
            ("hidden size", str(s.hidden_size)),
            ("experts", f"{s.num_experts} in a layer" if s.num_experts else "none"),
            ("vocabulary", str(s.vocab_size)),
            ("context", f"{s.max_position_embeddings} tokens"),
            *(("tensors", _type_line(each)) for each in self.tensor_types),
            *(("converted", each) for each in self.conversions),
            *(("left out", each) for each in self.skipped),
            *(("note", each) for each in self.notes),
            ("tokenizer", _tokenizer_line(self.tokenizer)),
            ("template", _template_line(self.template)),
        ]
        if self.text_fault:
            rows.append(("fault", self.text_fault))
        return "\n".join(f"{name:<13} {value}" for name, value in rows)


def inspection(path: str) -> Inspection:
    """Raises `CheckpointError` for what `open_checkpoint` refuses."""
    checkpoint = open_checkpoint(path)
    report = checkpoint.report
    tokenizer, template, fault = _text(checkpoint)
    return Inspection(
        path=path,
        architecture=report.architecture,
        sizes=_sizes(checkpoint),
        tensor_types=tuple(map(_tensor_type, report.loaded)),
        conversions=tuple(f"{each.change}: {each.num_weights} weights" for each in report.changed),
        skipped=tuple(f"{len(each.names)} tensors: {each.reason}" for each in report.skipped),
        notes=report.notes,
        tokenizer=tokenizer,
        template=template,
        text_fault=fault,
    )


def _sizes(checkpoint: Checkpoint) -> Sizes:
    config = checkpoint.config
    return Sizes(
        num_parameters=sum(prod(weight.shape) for weight in checkpoint.plan.weights),
        nbytes=checkpoint.report.nbytes,
        num_layers=len(config.layers),
        num_attention_layers=_count(config, AttentionConfig),
        num_gated_delta_net_layers=_count(config, GatedDeltaNetConfig),
        num_mtp_layers=len(config.mtp_layers),
        hidden_size=config.hidden_size,
        num_experts=max(
            layer.mlp.num_experts if isinstance(layer.mlp, MoEConfig) else 0
            for layer in config.layers
        ),
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
    )


def _count(config: ModelConfig, kind: type) -> int:
    return Counter(type(layer.mixer) for layer in config.layers)[kind]


def _tensor_type(total: TypeTotal) -> TensorType:
    name = total.dtype_name
    return TensorType(
        name, total.num_tensors, total.nbytes, PACKED_AS.get(name), is_widened=name in WIDENED
    )


def _text(
    checkpoint: Checkpoint,
) -> tuple[TokenizerFacts | None, TemplateFeatures | None, str | None]:
    try:
        tokenizer, template = load_text(checkpoint)
    except CheckpointError as error:
        return None, None, str(error)
    where = checkpoint.tokenizer
    kind = "tokenizer.json"
    if isinstance(where, TokenizerMetadata):
        pre = where.values.get("tokenizer.ggml.pre")
        kind = f"byte-level BPE, {pre}, rebuilt from GGUF"
    facts = TokenizerFacts(
        kind=kind,
        vocab_size=tokenizer.vocab_size,
        bos=None if tokenizer.bos_id is None else tokenizer.decode([tokenizer.bos_id], **_SPECIAL),
        ends=tuple(tokenizer.decode([i], **_SPECIAL) for i in tokenizer.eos_ids),
    )
    return facts, TemplateFeatures.of(template) if template else None, None


_SPECIAL = {"skip_special": False}


def _type_line(kind: TensorType) -> str:
    line = f"{kind.dtype_name:<5} {kind.num_tensors:>5}  {kind.nbytes / 1e6:>10.1f} MB"
    if kind.packed_as is None:
        return line
    wider = ", codes widened to a byte" if kind.is_widened else ""
    return f"{line}  packed as {kind.packed_as}{wider}"


def _tokenizer_line(tokenizer: TokenizerFacts | None) -> str:
    if tokenizer is None:
        return "none that can be used"
    bos = tokenizer.bos or "none"
    ends = " ".join(tokenizer.ends) or "none"
    return f"{tokenizer.kind}, {tokenizer.vocab_size} tokens; begin {bos}, end {ends}"


def _template_line(template: TemplateFeatures | None) -> str:
    if template is None:
        return "none"
    return ", ".join([name for name, has in asdict(template).items() if has] or ["messages only"])


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
