"""Base tools called as an agent calls them, and what a test needs to see of this machine's processes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from support import environment

from astrion_nb.errors import ToolError
from astrion_nb.tools.desk import Desk, Shell, Web
from astrion_nb.tools.registry import Tool, ToolContext
from astrion_nb.tools.workspace import Workspace

BOUND = 5.0


def desk(root: Path, *, shell: Shell | None = None, web: Web | None = None) -> Desk:
    """Return a desk whose workspace is a folder."""
    root.mkdir(parents=True, exist_ok=True)
    return Desk(Workspace(root), web or Web(), shell or Shell())


async def called(tool: Tool, at: Desk, output: Callable[[str], None] = lambda text: None, **arguments: Any) -> str:
    """Call a tool with what a model would write; returns its text."""
    values = tool.parse(orjson.dumps(arguments).decode())
    return str(await tool.call(values, ToolContext(1, "call_1", None, at, output)))  # type: ignore[arg-type]


async def refused(tool: Tool, at: Desk, **arguments: Any) -> str:
    """Call a tool that refuses; returns what it says, which is one line."""
    try:
        text = await called(tool, at, **arguments)
    except ToolError as error:
        said = str(error)
        assert "\n" not in said
        return said
    raise AssertionError(f"not refused: {text[:200]}")


def carrying(mark: str) -> list[int]:
    """Return the processes that have a mark in their command line or environment, this one left out."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                parts = [Path(f"/proc/{name}/{part}").read_bytes() for part in ("cmdline", "environ")]
            except OSError:
                continue
            if any(mark.encode() in part for part in parts):
                found.append(int(name))
    return found


def until(condition: Callable[[], object], seconds: float = BOUND) -> bool:
    """Look again and again until a condition holds; says whether it came to hold."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


class Blocked:
    """The longest time that a thread ran on at once, without what it waited for a processor.

    Other work on the machine takes the processor away; that is no fault of what is measured.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._mark = self._now()

    def _now(self) -> float:
        waited = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        return time.monotonic() - waited

    def start(self) -> None:
        """A step begins."""
        self._mark = self._now()

    def stop(self) -> None:
        """A step ends."""
        self.longest = max(self.longest, self._now() - self._mark)


def bubblewrap() -> None:
    """Skip where bubblewrap is not installed or may not make namespaces."""
    import subprocess

    if shutil.which("bwrap") is None:
        environment.missing("needs bubblewrap (bwrap)")
    made = subprocess.run(["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"], capture_output=True, check=False)
    if made.returncode:
        environment.missing(f"bubblewrap makes no namespaces here: {made.stderr.decode()[:100]}")
