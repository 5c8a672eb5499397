"""How a text is cut before BPE, for the families GGUF files name in `tokenizer.ggml.pre`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tokenizers import Regex, normalizers, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(digits: str) -> str:
    """Words with the one character before them; then numbers, punctuation and spaces."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What a family does around its merges. The patterns cut one after the other."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    """A word that is a token is taken whole, whatever the merges say."""
    adds_bos: bool = False
    """Where the file does not say."""
    composes: bool = False
    """Unicode is brought into composed form (NFC) first. GGUF files do not say so, the models'
    own tokenizers do."""

    def build(self) -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(each), behavior="isolated") for each in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*cuts, to_bytes])

    def build_normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.composes else None


_LLAMA3: Final = PreTokenizer((_words(r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)

PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": PreTokenizer((_words(r"\p{N}"),), composes=True),
    "qwen35": PreTokenizer(
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
        ),
        composes=True,
    ),
}
