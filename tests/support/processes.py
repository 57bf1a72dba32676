"""Look at real processes: whose children live, and whether a group of them ends in time."""

from __future__ import annotations

import os
import time

import psutil


def children(pid: int, program: str) -> list[int]:
    """Return the process ids of the children of a process whose command line names a program."""
    found = []
    for process in psutil.Process(pid).children():
        try:
            if any(program in word for word in process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:  # it ended while it was looked at
            continue
    return found


def living(group: int) -> list[int]:
    """Return the process ids of a process group that are not mere zombies."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(process.pid)
        except (OSError, psutil.NoSuchProcess):
            continue
    return found


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
