"""`python -m tools.train_tiny.compare`: the training forward against transformers.

Compares logits, the first draft and a chained draft on random weights with `Qwen3_5ForCausalLM` and
`MtpModel`, and the chat template with its Python twin. The reference fixes what sources disagree
about: a draft row reads the hidden state *after* the final norm.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from .checkpoint import save_weights
from .mixture import measured
from .model import Rows, TinyModel
from .model_config import ModelConfig, to_json
from .rendering import pieces
from .tasks import Split, draw

_LENGTH = 192
_TEMPLATE = Path(__file__).parent / "chat_template.jinja"


def _random_model() -> TinyModel:
    """Weights far from their initial values, so that every one of them matters."""
    torch.manual_seed(3)
    model = TinyModel(ModelConfig())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif parameter.dim() == 2:
                parameter.mul_(4)
    return model


def _difference(name: str, mine: Tensor, reference: Tensor) -> None:
    difference = float((mine - reference).abs().max())
    print(f"{name}: largest difference {difference:.1e} of {float(reference.abs().max()):.1f}")
    assert difference < 1e-3, name


@torch.no_grad()
def compare_model(folder: Path) -> None:
    """One row with two documents; the reference sees them apart."""
    from transformers import AutoModelForCausalLM
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    model = _random_model()
    config = to_json(model.config, eos_token_id=2, pad_token_id=0) | {"dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    save_weights(model, folder, torch.float32)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    tokens = torch.randint(0, model.config.vocab_size, (1, 2 * _LENGTH))
    documents = (torch.arange(2 * _LENGTH) >= _LENGTH).long()[None]
    rows = Rows.from_documents(documents)
    hidden = model.model(tokens, rows)
    embeds = model.model.embed_tokens
    joined = model.mtp.join(embeds(tokens.roll(-1, 1)), hidden)
    drafted = model.mtp(joined, rows)
    first = model.logits(drafted).argmax(-1)
    rejoined = model.mtp.join(embeds(first), drafted)
    chained = model.mtp(rejoined, rows, model.mtp.keys_values(joined))

    for start in (0, _LENGTH):
        part = tokens[:, start : start + _LENGTH]
        end = start + _LENGTH - 2  # the last column whose next token is in the document
        expected = reference(part, output_hidden_states=True)
        mine = model.logits(hidden[:, start : start + _LENGTH])
        _difference("logits", mine, expected.logits)
        mtp = MtpModel.from_pretrained(reference)
        cache = MtpCache(config=reference.config.get_mtp_config())
        _, logits, _ = mtp(
            input_ids=part[:, 1:],
            last_hidden_states=expected.hidden_states[-1][:, :-1],
            attention_mask=None,
            position_ids=torch.arange(1, _LENGTH)[None],
            mtp_cache=cache,
        )
        _difference("first draft", model.logits(drafted[:, end]), logits[:, 0])
        again = mtp.forward_layer(
            0,
            drafted[:, end, None],
            torch.tensor([[_LENGTH]]),
            cache,
            input_ids=first[:, end, None],
        )
        _difference("chained draft", chained[:, end], again[:, 0])


def compare_template(count: int = 20) -> None:
    """The jinja template renders what the training saw."""
    from transformers.utils.chat_template_utils import render_jinja_template

    rng = Random(1)
    for task in measured([]):
        for _ in range(count):
            example = draw(task, rng, Split.TRAIN)
            rendered, _ = render_jinja_template(
                [example.messages],
                tools=example.tools or None,
                chat_template=_TEMPLATE.read_text(),
                add_generation_prompt=True,
                enable_thinking=example.thinking,
            )
            prompt = "".join(piece.text for piece in pieces(example)[:-1])
            assert rendered[0] == prompt, (rendered[0], prompt)
    print("template: equal")


def main() -> None:
    compare_template()
    with tempfile.TemporaryDirectory() as folder:
        compare_model(Path(folder))


if __name__ == "__main__":
    main()
