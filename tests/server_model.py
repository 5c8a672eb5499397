"""A server on a real socket, in a thread of its own, with a tiny random model."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from thalweg.config.server import ServerConfig
from thalweg.server.run import make_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import uvicorn

    from thalweg import LLM
    from thalweg.engine.loading import LoadedEngine
    from thalweg.server.service import Service

MODEL = "tiny"


@dataclass(frozen=True)
class Running:
    url: str
    loaded: LoadedEngine
    server: uvicorn.Server

    @property
    def service(self) -> Service:
        app: Any = self.server.config.app
        service: Service = app.state.service
        return service

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=600)

    def chat(self, **body: Any) -> httpx.Response:
        given = {"model": MODEL, "messages": [{"role": "user", "content": "where?"}], **body}
        return self.post("/v1/chat/completions", **given)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=600)

    def assert_empty(self) -> None:
        """M8, once nobody is served."""
        parts = self.loaded.engine._parts
        assert not self.loaded.engine.has_work
        parts.scheduler.prefix_cache.evict(parts.caches.blocks.size, parts.caches.slots.size)
        for pool in (parts.caches.blocks, parts.caches.slots):
            assert pool.num_used == 0


@contextmanager
def running(llm: LLM, **options: Any) -> Iterator[Running]:
    server = make_server(llm.loaded, ServerConfig(port=0, **options), name=MODEL)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", llm.loaded, server)
    finally:
        server.should_exit = True
        thread.join()
