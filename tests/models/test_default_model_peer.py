"""The bundled checkpoint beside transformers: the same greedy answers to the tasks' questions."""

from __future__ import annotations

from random import Random

import torch
from transformers import AutoModelForCausalLM

from thalweg import LLM, SamplingParams
from thalweg.models import default_model_path
from train_tiny.mixture import measured
from train_tiny.tasks import Split, draw

SURE = 1e-4
"""Where the first choice leads the second by less, either may be taken."""
MAX_TOKENS = 48
PROSE = ["the river ran by the old mill and nobody spoke of it " * 12]


def test_greedy_answers_are_those_of_transformers() -> None:
    """Every token of every answer is the reference's first choice after what is before it."""
    rng = Random(5)
    examples = [draw(task, rng, Split.TEST) for task in measured(PROSE) for _ in range(3)]
    with LLM(default_model_path(), memory=512 << 20) as llm:
        prompts = [
            llm.render(e.messages, tools=e.tools or None, enable_thinking=e.thinking)
            for e in examples
        ]
        params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)
        answers = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
    reference = AutoModelForCausalLM.from_pretrained(default_model_path(), dtype=torch.float32)
    num_sure = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = torch.tensor([[*prompt.token_ids, *answer]])
        with torch.inference_mode():
            logits = reference(tokens).logits[0, len(prompt.token_ids) - 1 : -1]
        first, second = logits.topk(2).values.unbind(-1)
        sure = first - second >= SURE
        assert torch.equal(logits.argmax(-1)[sure], torch.tensor(answer)[sure])
        num_sure += int(sure.sum())
    assert num_sure > 500
