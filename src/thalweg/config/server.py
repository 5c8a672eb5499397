"""The server's options."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.errors import ConfigError

TOOL_FORMATS = ("auto", "json", "xml", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Fixed for the life of a server. Values out of range raise `ConfigError`."""

    host: str = "127.0.0.1"
    """Address to listen at; the default takes connections from this machine alone."""
    port: int = 8000
    """0 takes any that is free."""
    api_keys: tuple[str, ...] = ()
    """Requests must bring one of these as a bearer token; none: everybody may ask."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients call the server, beside `host` and those of loopback. None given: any
    name will do, unless `host` is a loopback address."""
    served_model_names: tuple[str, ...] = ()
    """Names that requests may ask for; none given: the name of the model's file or directory."""
    max_body_size: int = 8 << 20
    """Bytes of a request."""
    request_timeout: float | None = None
    """Seconds after which an answer ends where it is, unless its request says less."""
    min_priority: int = 0
    """The most urgent priority that requests may ask for; lower is more urgent."""
    keep_alive: float = 10.0
    """Seconds of silence in a stream after which a comment is sent."""
    drain_timeout: float = 60.0
    """Seconds that answers underway get to end when the server is told to."""
    cors_origins: tuple[str, ...] = ()
    """Web pages from these origins may ask; none: only the server's own page."""
    tool_format: str = "auto"
    """How the model writes tool calls; auto: as its chat template teaches it."""
    log_json: bool = False
    """Log lines are JSON objects."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port = {self.port} is not allowed: 0 to 65535")
        if self.max_body_size < 1:
            raise ConfigError(f"max_body_size = {self.max_body_size} is not allowed: 1 or more")
        for name in ("request_timeout", "keep_alive", "drain_timeout"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} = {value!r} is not allowed: seconds > 0")
        if self.tool_format not in TOOL_FORMATS:
            allowed = ", ".join(TOOL_FORMATS)
            raise ConfigError(f"tool_format = {self.tool_format!r} is not available: use {allowed}")
        for name in ("api_keys", "allowed_hosts", "served_model_names", "cors_origins"):
            if any(not text or not text.isascii() for text in getattr(self, name)):
                raise ConfigError(f"{name} has an entry that is empty or not ASCII")
