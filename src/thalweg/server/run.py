"""From a configuration to a process that answers until it is told to stop."""

from __future__ import annotations

import logging
import sys
from math import ceil
from typing import TYPE_CHECKING

import uvicorn

from thalweg.server.app import build_app

if TYPE_CHECKING:
    from thalweg.config.server import ServerConfig
    from thalweg.engine.loading import LoadedEngine


def make_server(loaded: LoadedEngine, config: ServerConfig, *, name: str) -> uvicorn.Server:
    """One that is not started. On SIGTERM it takes no more connections, lets answers underway end
    for `drain_timeout` seconds, and ends."""
    return uvicorn.Server(
        uvicorn.Config(
            build_app(loaded, config, name=name),
            host=config.host,
            port=config.port,
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=ceil(config.drain_timeout),
            h11_max_incomplete_event_size=64 * 1024,
        )
    )


def serve(loaded: LoadedEngine, config: ServerConfig, *, name: str) -> None:
    """Returns once it was told to stop and everything has ended."""
    _log_to_stderr(as_json=config.log_json)
    make_server(loaded, config, name=name).run()


def _log_to_stderr(*, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s" if as_json else "%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
