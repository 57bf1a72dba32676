"""``run_command``: a command line in the workspace, with everything that it starts.

It runs under :mod:`~astrion_nb.tools.supervisor`, gets no key of this process's environment, and is
over when the call is: by its end, its time-out, a stop of its agent, or the end of the kernel. Of a
long output head and tail are kept. With a sandbox (bubblewrap) it has no network, and nothing but the
workspace is writable.

Knows the workspace's folder; no permission.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..errors import ToolError
from . import process
from .desk import Desk
from .files import desk_of
from .registry import ToolContext, tool

HEAD = TAIL = 10_000
"""Characters of an output that are kept at its beginning and at its end."""
EVERY = 0.1
"""Seconds between two pieces of live output."""
MOST_LIVE = 4_000
"""Characters of one piece of live output."""
DRAIN = 1.0
"""Seconds in which what an ended command has written is read; something outside may hold its output open."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Kept:
    """The beginning and the end of an output."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._heads = self._tails = self.total = 0

    def add(self, text: str) -> None:
        """Take what comes next."""
        self.total += len(text)
        if self._heads < HEAD:
            part, text = text[: HEAD - self._heads], text[HEAD - self._heads :]
            self._head.append(part)
            self._heads += len(part)
        if text:
            self._tail.append(text)
            self._tails += len(text)
            while self._tails - len(self._tail[0]) >= TAIL:
                self._tails -= len(self._tail.popleft())

    def text(self) -> str:
        """Return what is kept, and how much is not."""
        head, tail = "".join(self._head), "".join(self._tail)[-TAIL:]
        cut = self.total - len(head) - len(tail)
        return f"{head}\n[cut: {cut} characters left out]\n{tail}" if cut > 0 else head + tail


def plain(text: str) -> str:
    """Return an output without escapes and control characters; of overwritten lines what stood at the end."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


class Live:
    """Shows an output while it comes: now and then, and of much only the end.

    Parameters
    ----------
    show : callable
        Takes text.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._text = show, ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        """Take what comes next."""
        self._text += text
        if len(self._text) > MOST_LIVE:
            self._text = "…" + self._text[-MOST_LIVE:]
        if self._timer is None:
            self._flush()

    def close(self) -> None:
        """Show what is left."""
        if self._timer is not None:
            self._timer.cancel()
        if text := plain(self._text):
            self._show(text)
        self._text = ""

    def _flush(self) -> None:
        self._timer = None
        if not self._text:
            return
        text, self._text = self._text, ""
        begun, escape, rest = text.rpartition("\x1b")
        if escape and len(rest) < 40 and not _ESCAPES.match(escape + rest):
            text, self._text = begun, escape + rest  # an escape sequence whose end has not come yet
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)
        if text := plain(text):
            self._show(text)


def _preview(arguments: Mapping[str, Any], desk: Desk) -> str:
    return f"$ {arguments['command']}" + ("\n[sandbox: no network]" if desk.shell.sandbox else "")


@tool(
    name="run_command",
    description=(
        "在工作区目录中用 shell 运行命令，返回输出与退出码。没有交互输入；命令结束或超时后，"
        "它启动的所有进程（包括后台进程）都会被结束。"
    ),
    effect="run",
    preview=_preview,
)
async def run_command(
    context: ToolContext,
    command: Annotated[str, "要运行的命令行。"],
    timeout: Annotated[int, Field(ge=1, le=3600), "最多运行的秒数。"] = 120,
) -> str:
    """Run a command line to its end."""
    if not command.strip():
        raise ToolError("command: must not be empty")
    if "\0" in command:
        raise ToolError("command: holds a NUL character")
    desk = desk_of(context)
    kept, live, began = Kept(), Live(context.output), time.monotonic()
    running = await process.start(
        _line(command, desk),
        desk.workspace.root,
        process.environment(os.environ, desk.shell.secrets, desk.shell.values),
    )
    reading = asyncio.create_task(_read(running.reader, kept, live))
    ended = ""
    try:
        async with asyncio.timeout(timeout):
            await running.process.wait()
    except TimeoutError:
        ended = f"not done within {timeout} s, so it was ended with all that it had started"
    finally:
        try:
            await running.end()
            await asyncio.wait((reading,), timeout=DRAIN)
        finally:
            reading.cancel()
            running.close()
            live.close()
    took = f"{time.monotonic() - began:.1f} s"
    output = plain(kept.text()).rstrip()
    how = f"[{ended}]" if ended else f"[exit {_status(running.process.returncode)}, {took}]"
    return f"{output}\n{how}" if output else how


def _line(command: str, desk: Desk) -> list[str]:
    line = ["/bin/sh", "-c", command]
    return process.sandboxed(line, desk.workspace.root, Path.home()) if desk.shell.sandbox else line


def _status(code: int | None) -> int:
    """Return an exit status as a shell has it; a supervisor that was killed was killed by the command."""
    return 128 - code if code is not None and code < 0 else code or 0


async def _read(reader: asyncio.StreamReader, kept: Kept, live: Live) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await reader.read(1 << 16):
        if text := decoder.decode(data):
            kept.add(text)
            live.add(text)
    if text := decoder.decode(b"", final=True):
        kept.add(text)
        live.add(text)
