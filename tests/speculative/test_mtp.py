"""The multi-token-prediction head: what it drafts is what transformers' `MtpModel` drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from checkpoints import HYBRIDS, Variant, edit_config, make_checkpoint
from thalweg.batch import ForwardBatch, SequenceInput
from thalweg.config import EngineConfig
from thalweg.memory.manager import CacheManager
from thalweg.memory.manager import Sequence as CacheSequence
from thalweg.memory.storage import CacheStorage
from thalweg.models import default_model_path
from thalweg.models.build import build_model
from thalweg.models.loader import open_checkpoint
from thalweg.ops.sampling import Draw
from thalweg.runner.sampler import Sampler
from thalweg.speculative.drafter import DraftRow
from thalweg.speculative.mtp import MTPDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from thalweg.models.mtp import MTPModel


GREEDY = Draw(0.0, 0, 1.0, 0.0, 0)
BLOCK_SIZE = 16


class Ample:
    """Nothing is due, and there is room."""

    def settle(self) -> None: ...

    def make_room(self, num_blocks: int, num_slots: int) -> None: ...


class Head:
    """A model with its head, and one sequence."""

    def __init__(self, path: Path) -> None:
        config = EngineConfig(kernels="torch", speculate="mtp")
        built = build_model(open_checkpoint(path), config, max_model_len=512)
        assert built.mtp is not None
        self.model: MTPModel = built.mtp
        self.storage = CacheStorage(self.model.cache_specs, 40, 40, block_size=BLOCK_SIZE)
        self.caches = CacheManager(40, BLOCK_SIZE, 40)
        sampler = Sampler(built.kernels, built.model.config.vocab_size, torch.float32)
        self.logits: list[Tensor] = []

        def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
            self.logits += logits
            return sampler.sample(logits, draws)

        self.drafter = MTPDrafter(
            self.model,
            self.storage.layers[-1],
            self.caches,
            sample=sample,
            memory=Ample(),
        )

    @torch.inference_mode()
    def compute(self, seq: CacheSequence, tokens: Sequence[int]) -> None:
        reservation = self.caches.reserve(seq, len(tokens))
        part = SequenceInput(
            tokens, seq.num_computed, seq.blocks, reservation.load_slot, reservation.store_slots
        )
        self.model(ForwardBatch.prefill(part, block_size=BLOCK_SIZE), self.storage.layers)
        self.caches.commit(reservation, len(tokens))

    def propose(self, seq: CacheSequence, tokens: list[int], num_drafts: int) -> tuple[int, ...]:
        """Greedy; `logits` has what each was chosen by."""
        self.logits.clear()
        row = DraftRow(tokens, num_drafts, seq, lambda n: GREEDY)
        return self.drafter.propose([row])[0]


class Reference:
    """transformers' own head of the same checkpoint."""

    def __init__(self, path: Path) -> None:
        auto = transformers.AutoModelForCausalLM
        self.target: Any = auto.from_pretrained(path, dtype=torch.float32)
        self.mtp: Any = MtpModel.from_pretrained(self.target)

    @torch.no_grad()
    def drafts(self, tokens: list[int], num_drafts: int) -> list[Tensor]:
        """Logits of the drafts that follow `tokens`, the first by `MtpModel.forward`, the further
        ones by its layer on its own result."""
        ids = torch.tensor([tokens])
        hidden = self.target(ids[:, :-1], output_hidden_states=True).hidden_states[-1]
        cache = MtpCache(config=self.target.config.get_mtp_config())
        positions = torch.arange(1, len(tokens))[None]
        hidden = self.mtp.forward_layer(0, hidden, positions, cache, input_ids=ids[:, 1:])
        logits = [self.mtp._project_to_logits(hidden[:, -1])[0]]
        for n in range(1, num_drafts):
            position = torch.tensor([[len(tokens) - 1 + n]])
            draft = logits[-1].argmax()[None, None]
            hidden = self.mtp.forward_layer(0, hidden[:, -1:], position, cache, input_ids=draft)
            logits.append(self.mtp._project_to_logits(hidden[:, -1])[0])
        return logits

    @torch.no_grad()
    def first(self, tokens: list[int]) -> Tensor:
        ids = torch.tensor([tokens])
        hidden = self.target(ids[:, :-1], output_hidden_states=True).hidden_states[-1]
        cache = MtpCache(config=self.target.config.get_mtp_config())
        positions = torch.arange(1, len(tokens))[None]
        _, logits, _ = self.mtp(ids[:, 1:], hidden, None, positions, cache)
        return logits[0, 0]


def with_random_head(path: Path, model_type: str) -> Path:
    """Well conditioned, so that float32 tells what its drafts are."""
    make_checkpoint(path, model_type, Variant(mtp=True))
    fields = {"mtp_num_hidden_layers": 1, "num_mtp_layers": 1}
    edit_config(path, rms_norm_eps=0.1, mtp_layer_types=["full_attention"], **fields)
    return path


@pytest.fixture(params=[*HYBRIDS, "bundled"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "bundled":
        return default_model_path()
    return with_random_head(tmp_path, request.param)


@pytest.mark.parametrize("length", [2, 3, 17, 40, 150])
def test_drafts_are_those_of_transformers(checkpoint: Path, length: int) -> None:
    """Whatever the chunks in which the head caught up."""
    tokens = [3 + (n * n * 7 + n) % 500 for n in range(length)]
    reference = Reference(checkpoint)
    expected = reference.drafts(tokens, 5)
    torch.testing.assert_close(reference.first(tokens), expected[0])
    for chunks in ([length - 1], [1, 15, 1, 32, length]):
        head, seq, start = Head(checkpoint), CacheSequence(), 0
        for size in chunks:
            if part := tokens[start : min(start + size, length - 1)]:
                head.compute(seq, part)
                start += len(part)
        drafts = head.propose(seq, tokens, 5)
        assert len(drafts) == 5
        for mine, theirs in zip(head.logits, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=3e-5 * float(theirs.abs().max()))
        assert list(drafts) == [int(each.argmax()) for each in expected]
