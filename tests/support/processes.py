"""Look at real processes: which of a group live, and whether they end in time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def living(group: int) -> list[int]:
    """Return the process ids of a process group that are not mere zombies."""
    if sys.platform == "linux":
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                except (OSError, ValueError):
                    continue
                if int(pgrp) == group and state not in "ZX":
                    found.append(int(entry.name))
        return found
    table = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in table.splitlines())
    return [int(pid) for pid, pgid, stat in rows if int(pgid) == group and not stat.startswith("Z")]


def seconds_until_gone(group: int, limit: float) -> float:
    """Wait until no process of the group lives; return how long it took.

    Raises
    ------
    AssertionError
        Some live on after ``limit`` seconds.
    """
    begun = time.monotonic()
    while left := living(group):
        assert time.monotonic() - begun < limit, f"processes {left} of group {group} live on after {limit} s"
        time.sleep(0.02)
    return time.monotonic() - begun
