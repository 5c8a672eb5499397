"""What computer this is, in a few words."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def machine_name() -> str:
    """Such as `AMD EPYC 7763, 2 processors, Linux 6.1.0`."""
    system = f"{platform.system()} {platform.release()}"
    return f"{_processor()}, {os.cpu_count()} processors, {system}"


def _processor() -> str:
    text = CPUINFO.read_text() if CPUINFO.is_file() else ""
    match = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()
