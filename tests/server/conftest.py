"""Servers for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from server_model import Running, running
from thalweg import LLM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def served_llm(tiny_llm_dir: Path) -> Iterator[LLM]:
    with LLM(tiny_llm_dir, kernels="cpu", max_model_len=512, max_num_waiting=64) as llm:
        yield llm


@pytest.fixture(scope="session")
def expected(tiny_llm_dir: Path) -> Iterator[LLM]:
    """The same model as a library, to compare with."""
    with LLM(tiny_llm_dir, kernels="cpu", max_model_len=512) as llm:
        yield llm


@pytest.fixture
def serve(served_llm: LLM) -> Callable[..., Any]:
    """serve(**options): a server of its own, as a context."""

    def call(**options: Any) -> Any:
        return running(served_llm, **options)

    return call


@pytest.fixture
def server(serve: Callable[..., Any]) -> Iterator[Running]:
    with serve() as server:
        yield server
    server.assert_empty()


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client
