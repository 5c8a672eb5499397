"""How much memory this machine has left for us."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
RESERVE = 256 << 20
"""Left to everything else, or a tenth of what is free if that is more."""


def available_nbytes() -> int:
    """What may be planned with: free memory, or what the control group has left, less a reserve."""
    left = min(_machine(), *_control_groups())
    return max(0, left - max(RESERVE, left // 10))


def _machine() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    # How much is free is not known.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _control_groups() -> list[int]:
    """Of version 2 and version 1, where there is a limit."""
    left = []
    for limit, usage, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        text = _read(CGROUP / limit)
        if text.isdecimal():
            stat = _read((CGROUP / limit).with_name("memory.stat")).split()
            reclaimable = int(stat[stat.index(cached) + 1]) if cached in stat else 0
            left.append(int(text) - int(_read(CGROUP / usage)) + reclaimable)
    return [*left, 1 << 62]


def _read(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""
