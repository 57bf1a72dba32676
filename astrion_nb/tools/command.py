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
import contextlib
import os
import re
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..errors import ToolError
from . import supervisor
from .desk import Desk, Shell
from .files import desk_of
from .registry import ToolContext, tool

HEAD = TAIL = 10_000
"""Characters of an output that are kept at its beginning and at its end."""
PATIENCE = 8.0
"""Seconds in which what is killed has to be gone."""

_SECRET = re.compile(
    r"key|token|secret|passw|passphrase|credential|auth(?!or)|cookie|session|private|dsn|(^|_)(pat|pwd)(_|$)",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def environment(
    variables: Mapping[str, str], secrets: Iterable[str] = (), values: Iterable[str] = ()
) -> dict[str, str]:
    """Return the environment that a command gets.

    Parameters
    ----------
    variables : mapping
        This process's.
    secrets : iterable of str
        Names that are left out, beside those that tell what they hold.
    values : iterable of str
        Keys: a variable that holds one is left out whatever its name.
    """
    gone, held = set(secrets), [value for value in values if value]
    kept = {
        name: value
        for name, value in variables.items()
        if name not in gone
        and not _SECRET.search(name)
        and not name.startswith(("ASTRION_", "JPY_", "JUPYTER"))
        and not any(key in value for key in held)
    }
    return kept | {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"}


def sandboxed(command: Sequence[str], root: Path, home: Path) -> list[str]:
    """Return a command that runs in bubblewrap: no network, own processes, nothing but ``root`` writable.

    Parameters
    ----------
    command : sequence of str
    root : Path
        The workspace.
    home : Path
        The user's folder: hidden, but for the workspace and this Python where they lie in it.

    Raises
    ------
    ToolError
        bubblewrap is not installed.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise ToolError(
            "commands run in a sandbox here, and bubblewrap (bwrap) is not installed: a person can install it "
            "(apt install bubblewrap) or turn the sandbox off"
        )
    out = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    out += ["--tmpfs", str(home)] if home != Path("/") and home.is_dir() else []
    for prefix in sorted({sys.prefix, sys.base_prefix}):
        if Path(prefix).is_relative_to(home) or Path(prefix).is_relative_to("/tmp"):
            out += ["--ro-bind", prefix, prefix]
    out += ["--bind", str(root), str(root), "--chdir", str(root)]
    out += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--"]
    return [*out, *command]


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
    """Return an output without escape sequences, and of lines that were written over what stood at the end."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


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
    kept, began = Kept(), time.monotonic()
    process = await _started(command, desk.workspace.root, desk.shell)
    ended = ""
    try:
        async with asyncio.timeout(timeout):
            await _read(process, kept, context)
            await process.wait()
    except TimeoutError:
        ended = f"not done within {timeout} s, so it was ended with all that it had started"
    finally:
        await _end(process)
    took = f"{time.monotonic() - began:.1f} s"
    output = plain(kept.text()).rstrip()
    how = f"[{ended}]" if ended else f"[exit {process.returncode}, {took}]"
    return f"{output}\n{how}" if output else how


async def _started(command: str, root: Path, shell: Shell) -> asyncio.subprocess.Process:
    if os.name != "posix":
        raise ToolError("run_command needs a POSIX system; on Windows start Jupyter in WSL")
    line = ["/bin/sh", "-c", command]
    if shell.sandbox:
        line = sandboxed(line, root, Path.home())
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", supervisor.__file__, *line),
        cwd=root,
        env=environment(os.environ, shell.secrets, shell.values),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def _read(process: asyncio.subprocess.Process, kept: Kept, context: ToolContext) -> None:
    assert process.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        data = await process.stdout.read(1 << 16)
        text = decoder.decode(data, final=not data)
        if text:
            kept.add(text)
            context.output(plain(text))
        if not data:
            return


async def _end(process: asyncio.subprocess.Process) -> None:
    """Cut the lifeline, and see everything end."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
