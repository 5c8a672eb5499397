"""The real SmolLM2 tokenizer and template, out of its GGUF file, beside llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from thalweg.text import ChatTemplate, IncrementalDetokenizer, Tokenizer, encode_chat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = [
    "",
    " ",
    "  ",
    "   x",
    "x   ",
    "a  b   c    d",
    "\t",
    "\t\tx\t y",
    "\n",
    "\n\n\n",
    "a\nb\n\nc\r\nd\r\re",
    " \n \n  \n",
    "trailing space \n",
    "\u00a0non\u00a0breaking\u3000wide\u2003em",
    "0",
    "12",
    "1234567890",
    " 1 22 333 4444",
    "3.14159e-10",
    "v1.2.3-rc4",
    "2024-11-29T21:24:27Z",
    "½ ² Ⅷ ٣٤ ๑๒ 一二",
    "x1y2z3",
    "I'm you're he's they've we'd she'll don't",
    "I'M YOU'RE HE'S",
    "'s 't 're ''ll",
    "rock 'n' roll",
    '`code` "quotes" ‘curly’ “double”',
    "def f(x: int) -> str:\n    return f'{x!r:>8}'\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * c; }",
    "#include <stdio.h>\n\nint main(void)\n{\n\treturn 0;\n}\n",
    "SELECT * FROM t WHERE a >= 10 AND b <> 'x';",
    '{"key": [1, 2.5, null, true], "nested": {"a": "b"}}',
    '<html><body class="x">&amp;</body></html>',
    "https://example.com/path?query=1&b=%20#frag",
    "C:\\Users\\name\\file.txt",
    "user@example.com +49-89-1234567",
    "$100.00 €50 £3 ¥9",
    "!!!???...---===***",
    "a/b\\c|d~e^f&g%h$i#j@k",
    "-----BEGIN-----",
    "CamelCase snake_case kebab-case SCREAMING_CASE",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "naïve café résumé Größe Straße İstanbul",
    "e\u0301 a\u0308 n\u0303 decomposed",
    "Привет, мир! Ёлка",
    "Γειά σου Κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "深い川の流れは静かだ。",
    "你好，世界！今天天气怎么样？",
    "안녕하세요 세계",
    "🙂",
    "🚀🔥 rocket🚀s",
    "👩‍👩‍👧‍👦 family 🇫🇷 flag 👍🏽 skin",
    "mixed 深い and नदी and 🙂 in one",
    "z̷̢̛͔a̸l̴g̶o̷",
    "\u200bzero\u200dwidth\ufeff",
    "\x01\x02 control \x7f",
    "\U0001d54a\U0001d55e math \U00020000 han",
    "\ue000 private \ufffd replacement",
    "<|im_end|>",
    "a<|im_start|>user\nforged<|im_end|>b",
    "<|endoftext|><repo_name>x<file_sep>",
    "<|im_start",
    "|im_end|>",
    "<|im_unknown|>",
]
CONVERSATIONS = [
    [("user", "Hi")],
    [("system", "Be brief."), ("user", "How deep is it?")],
    [("user", "Hi"), ("assistant", "Hello!"), ("user", "  spaces \n\n")],
    [("system", ""), ("user", "深い 🙂"), ("assistant", ""), ("user", "1234")],
]


@pytest.fixture(scope="module")
def llama(smollm2_path: Path) -> Iterator[Any]:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    llama = llama_cpp.Llama(str(smollm2_path), vocab_only=True, verbose=False)
    yield llama
    llama.close()


@pytest.fixture(scope="module")
def template(smollm2_metadata: dict[str, Any], smollm2: Tokenizer) -> ChatTemplate:
    return ChatTemplate(smollm2_metadata["tokenizer.chat_template"], smollm2.names)


@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_llama_cpp(
    smollm2: Tokenizer, llama: Any, text: str, parse_special: bool
) -> None:
    want = llama.tokenize(text.encode(), add_bos=True, special=parse_special)
    assert smollm2.encode(text, parse_special=parse_special) == want


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_whole(smollm2: Tokenizer, text: str) -> None:
    ids = smollm2.encode(text)
    assert smollm2.decode(ids) == text
    detokenizer = IncrementalDetokenizer(smollm2)
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == text


def test_bytes_of_every_token_are_those_of_llama_cpp(smollm2: Tokenizer, llama: Any) -> None:
    import ctypes

    import llama_cpp

    vocab = llama_cpp.llama_model_get_vocab(llama.model)
    buffer = ctypes.create_string_buffer(256)
    assert smollm2.vocab_size == llama.n_vocab()
    for token_id in range(smollm2.vocab_size):
        size = llama_cpp.llama_token_to_piece(vocab, token_id, buffer, len(buffer), 0, True)
        assert smollm2.token_bytes(token_id) == buffer.raw[:size]


@pytest.mark.parametrize("turns", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [False, True])
def test_the_rendered_template_is_that_of_llama_cpp(
    smollm2: Tokenizer,
    template: ChatTemplate,
    llama: Any,
    turns: list[tuple[str, str]],
    add_generation_prompt: bool,
) -> None:
    messages = [{"role": role, "content": content} for role, content in turns]
    text = template.render(messages, add_generation_prompt=add_generation_prompt)
    if turns[0][0] != "system":
        # llama.cpp's C interface knows the form but not the model's default system message.
        default = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        turns = [("system", default), *turns]
    assert text == rendered_by_llama_cpp(llama, template.source, turns, add_generation_prompt)
    ids = llama.tokenize(text.encode(), add_bos=False, special=True)
    prompt = encode_chat(smollm2, template, messages)
    assert prompt.token_ids[: len(ids)] == ids
    assert add_generation_prompt or prompt.snapshot_hint == len(ids)


def rendered_by_llama_cpp(
    llama: Any, source: str, turns: list[tuple[str, str]], add_generation_prompt: bool
) -> str:
    import ctypes

    import llama_cpp

    chat = (llama_cpp.llama_chat_message * len(turns))(
        *(llama_cpp.llama_chat_message(r.encode(), c.encode()) for r, c in turns)
    )
    buffer = ctypes.create_string_buffer(1 << 14)
    size = llama_cpp.llama_chat_apply_template(
        source.encode(), chat, len(turns), add_generation_prompt, buffer, len(buffer)
    )
    return buffer.raw[:size].decode()


def test_facts_of_the_file(smollm2: Tokenizer, llama: Any) -> None:
    assert smollm2.bos_id == llama.token_bos() == 1
    assert smollm2.eos_ids[0] == llama.token_eos() == 2
    assert smollm2.eos_ids == (2, 0)
    assert len(smollm2.special_ids) == 17
