"""Text in and text out: tokenizers, chat templates, and the text of an answer as it grows."""

from thalweg.text.chat_template import ChatTemplate
from thalweg.text.detokenizer import IncrementalDetokenizer
from thalweg.text.gguf_vocab import tokenizer_from_gguf
from thalweg.text.prompt import ChatPrompt, encode_chat
from thalweg.text.special_tokens import SpecialTokens
from thalweg.text.stops import StopChecker
from thalweg.text.tokenizer import Tokenizer

__all__ = [
    "ChatPrompt",
    "ChatTemplate",
    "IncrementalDetokenizer",
    "SpecialTokens",
    "StopChecker",
    "Tokenizer",
    "encode_chat",
    "tokenizer_from_gguf",
]
