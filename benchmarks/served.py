"""`thalweg serve` in a process of its own, as benchmarks and long tests use it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = "import sys; from thalweg.cli import run; sys.exit(run(sys.argv[1:]))"


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[bytes]

    @property
    def model(self) -> str:
        name: str = httpx.get(f"{self.url}/v1/models", timeout=600).json()["data"][0]["id"]
        return name

    def cpu_seconds(self) -> float:
        """That it has used so far, in all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def idle_share(self, seconds: float) -> float:
        """Of one core, used while nobody asks."""
        before, start = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.monotonic() - start)


@contextmanager
def served(*flags: str) -> Iterator[Served]:
    """`flags` of `thalweg serve`, but for the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [sys.executable, "-c", COMMAND, "serve", "--port", str(port), *flags]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                httpx.get(f"{url}/health", timeout=600).raise_for_status()
                break
            except httpx.ConnectError:
                time.sleep(0.1)
        else:
            raise SystemExit(f"thalweg serve has ended with {process.returncode}")
        yield Served(url, process)
    finally:
        process.terminate()
        process.wait()
