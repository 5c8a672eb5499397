"""Thalweg beside transformers: the same weights, threads and prompts, in turn, in one run.

    python benchmarks/compare_transformers.py models/SmolLM2-135M-Instruct.Q4_1.gguf --threads 2

Both run float32. Each case is timed A B A B ...; the table has medians and their ratio. Run it
on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch
import transformers

import thalweg
from thalweg import LLM, SamplingParams
from thalweg.config.model import AttentionConfig
from thalweg.models.loader import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Case:
    name: str
    num_seqs: int
    prompt_len: int
    num_new: int

    @property
    def num_tokens(self) -> int:
        """What the rate counts: generated tokens, or the prompt's if there is only one of those."""
        return self.num_seqs * (self.num_new if self.num_new > 1 else self.prompt_len)


CASES = (
    Case("decode, 1 sequence", 1, 16, 128),
    Case("decode, 8 sequences", 8, 16, 128),
    Case("prompt of 512", 1, 512, 1),
)


@dataclass(frozen=True)
class Row:
    case: str
    thalweg: float
    """tokens/s, median"""
    transformers: float
    ratio: float


def peer_model(path: str) -> transformers.LlamaForCausalLM:
    """transformers' own model with the weights of a llama checkpoint, as Thalweg reads them."""
    checkpoint = open_checkpoint(path)
    facts, mixer = checkpoint.config, checkpoint.config.layers[0].mixer
    assert isinstance(mixer, AttentionConfig), "a llama has attention everywhere"
    config = transformers.LlamaConfig(
        vocab_size=facts.vocab_size,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.layers[0].mlp.intermediate_size,
        num_hidden_layers=len(facts.layers),
        num_attention_heads=mixer.num_heads,
        num_key_value_heads=mixer.num_kv_heads,
        head_dim=mixer.head_dim,
        rms_norm_eps=facts.norm.eps,
        rope_parameters={"rope_type": "default", "rope_theta": mixer.rope.theta},
        max_position_embeddings=facts.max_position_embeddings,
        tie_word_embeddings=facts.tie_word_embeddings,
    )
    model = transformers.LlamaForCausalLM(config)
    model.train(False)
    weights = checkpoint.weights()
    state = {f"model.{spec.name}": weights[spec.name].float() for spec in checkpoint.plan.weights}
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    return model


def prompts(case: Case, vocab_size: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(case.num_seqs)
    ids = torch.randint(100, vocab_size, (case.num_seqs, case.prompt_len), generator=generator)
    return ids.tolist()


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(llm: LLM, model: transformers.LlamaForCausalLM, case: Case, repeats: int) -> Row:
    ids = prompts(case, llm.loaded.model.vocab_size)
    params = SamplingParams(temperature=0, max_tokens=case.num_new, ignore_eos=True)
    tensor = torch.tensor(ids)

    ours_threads, threads = torch.get_num_threads(), llm.config.threads or 1

    def ours() -> object:
        torch.set_num_threads(ours_threads)  # 1 where the compiled kernels have their own
        return llm.generate(ids, params)

    def theirs() -> object:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return model.generate(
                tensor,
                attention_mask=torch.ones_like(tensor),
                max_new_tokens=case.num_new,
                min_new_tokens=case.num_new,
                do_sample=False,
                pad_token_id=0,
            )

    ours(), theirs()
    times = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
    a, b = (case.num_tokens / statistics.median(column) for column in zip(*times, strict=True))
    return Row(case.name, a, b, a / b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a llama GGUF file or directory")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity(logging.ERROR)
    model = peer_model(args.model)
    # The prompts are the same each time: with the prefix cache only the first would be computed.
    with LLM(args.model, threads=args.threads, prefix_cache=False) as llm:
        rows = [compare(llm, model, case, args.repeats) for case in CASES]
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    print(
        f"thalweg {thalweg.__version__}, transformers {transformers.__version__}, "
        f"torch {torch.__version__}, float32, {args.threads} threads, tokens/s"
    )
    print("| case | thalweg | transformers | ratio |\n| --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row.case} | {row.thalweg:.1f} | {row.transformers:.1f} | {row.ratio:.2f} |")


if __name__ == "__main__":
    main()
