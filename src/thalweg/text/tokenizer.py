"""Text to token ids and back, over the `tokenizers` library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

import tokenizers

from thalweg.errors import CheckpointError, RequestError
from thalweg.text.special_tokens import SpecialTokens, read_special_tokens
from thalweg.text.token_bytes import token_bytes_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Tokenizer:
    """A vocabulary with its rules. Immutable, and safe to use from several threads."""

    def __init__(self, core: tokenizers.Tokenizer, special: SpecialTokens) -> None:
        """`core` becomes ours: truncation and padding that its file may ask for are turned off."""
        core.no_truncation()
        core.no_padding()
        added = core.get_added_tokens_decoder()
        self._core = core
        self._as_text = _twin(core)
        self._rule = token_bytes_rule(core)
        self._added = {token_id: token.content for token_id, token in added.items()}
        self.special_tokens: Mapping[int, tokenizers.AddedToken] = {
            token_id: token for token_id, token in added.items() if token.special
        }
        self.special_ids = frozenset(self.special_tokens)
        self.names = special.names
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self.strips_space = self._rule.strips_space
        self.vocab_size = max(
            [core.get_vocab_size(with_added_tokens=False), *(i + 1 for i in added)]
        )
        """One more than the largest id; the model's logits may be wider, but not narrower."""

    @classmethod
    def from_directory(cls, path: str | Path) -> Self:
        """From `tokenizer.json` and the small JSON files beside it."""
        file = Path(path) / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(f"{file} does not exist; no other tokenizer file is read")
        try:
            core = tokenizers.Tokenizer.from_buffer(file.read_bytes())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
        return cls(core, read_special_tokens(file.parent, core.token_to_id))

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The ids of a whole prompt, with a BOS if the model's own tokenizer puts one.

        Unless `parse_special`, what looks like a special token in `text` is ordinary text.
        """
        return _encode(self._core if parse_special else self._as_text, text, add_bos=True)

    def encode_fragment(self, text: str, *, parse_special: bool = False) -> list[int]:
        """As `encode`, for text that is not the beginning or that writes its own BOS."""
        return _encode(self._core if parse_special else self._as_text, text, add_bos=False)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD. Spacing is never tidied up."""
        skipped = self.special_ids if skip_special else frozenset[int]()
        data = b"".join(self.token_bytes(token_id) for token_id in ids if token_id not in skipped)
        text = data.decode("utf-8", errors="replace")
        return text.removeprefix(" ") if self.strips_space else text

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes this token adds to a text; those of its name if it is an added token."""
        if not 0 <= token_id < self.vocab_size:
            raise RequestError(f"token id {token_id} is not allowed: 0 to {self.vocab_size - 1}")
        if token_id in self._added:
            return self._added[token_id].encode()
        return self._rule.to_bytes(self._core.id_to_token(token_id) or "")

    def to_json(self) -> str:
        """What a `tokenizer.json` of this tokenizer holds."""
        return self._core.to_str()

    def token_to_id(self, token: str) -> int | None:
        """The id of a vocabulary entry, spelt as the vocabulary spells it."""
        return self._core.token_to_id(token)


def _encode(core: tokenizers.Tokenizer, text: str, *, add_bos: bool) -> list[int]:
    try:
        return core.encode(text, add_special_tokens=add_bos).ids
    except TypeError as error:
        # The library's word for both a value that is no str and a str with lone surrogates.
        raise RequestError(f"{text!r:.80} is not allowed: text without surrogates") from error


def _twin(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """`core`, except that special tokens in a text are text. The vocabulary is shared, not copied.

    A flag of the library does this, but switching it for one call would race with other threads.
    """
    twin = tokenizers.Tokenizer(core.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(core, part)) is not None:
            setattr(twin, part, value)
    added = core.get_added_tokens_decoder()
    twin.add_tokens([added[token_id] for token_id in sorted(added)])
    if set(twin.get_added_tokens_decoder()) != set(added):
        raise CheckpointError(
            "the ids of the tokenizer's added tokens do not follow its vocabulary"
        )
    twin.encode_special_tokens = True
    return twin
