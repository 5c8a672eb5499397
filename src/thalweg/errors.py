"""What can go wrong through no fault of ours. Messages name the value and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass


class ThalwegError(Exception):
    """The root of every error a user can cause; its text is one line fit to be shown as it is."""


class ConfigError(ThalwegError):
    """An engine option is out of range, or names something this build does not have."""


class CheckpointError(ThalwegError):
    """A model's files are missing, damaged, contradictory, or of a kind that is not implemented."""


class RequestError(ThalwegError):
    """A prompt, a message list or a sampling parameter is invalid. Other requests go on."""


class EngineClosed(ThalwegError):
    """The engine is shutting down, or it has failed."""


class RequestFailed(ThalwegError):
    """Computing a request failed, through no fault of its sender. Other requests go on."""


class QueueFull(RequestError):
    """As many requests are waiting as may. The same request may be taken later."""


@dataclass
class OutOfCache(ThalwegError):
    """A reservation asked for more ids than are free; nothing was changed.

    `blocks` and `slots` say how many of each were missing.
    """

    blocks: int
    slots: int

    def __str__(self) -> str:
        return f"out of cache: {self.blocks} blocks and {self.slots} state slots are missing"
