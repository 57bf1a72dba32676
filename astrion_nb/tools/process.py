"""A command as a process: what it sees of this one's environment, its sandbox, its start and its end.

It runs under :mod:`~astrion_nb.tools.supervisor`, whose lifeline is held here. Should a command have
killed its supervisors, what it has left is found by a mark in its environment (Linux).

Knows no tool and no workspace.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from . import supervisor

PATIENCE = 8.0
"""Seconds in which what is killed has to be gone."""
MARK = "ASTRION_COMMAND"
"""Name of the variable by which a command's processes are known."""

_NAMES = re.compile(
    r"key|token|secret|passw|passphrase|cred|auth(?!or)|cookie|session|private|bearer|dsn|salt"
    r"|(^|_)(pass|pat|pwd|pw)(_|$)",
    re.IGNORECASE,
)
# Keys by their form, and addresses with a password in them.
_VALUES = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|\b(sk-|gh[opsu]_|github_pat_|glpat-|xox[abpr]-|hf_|AKIA|ASIA|AIza)[\w-]{8}"
    r"|\beyJ[\w-]+\.eyJ|-----BEGIN "
)
_SHORTEST = 8
"""Characters of a key that is looked for within values; a shorter one is a whole value."""
_PLAIN = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"}


def environment(variables: Mapping[str, str], names: Iterable[str] = (), values: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment that a command gets.

    Parameters
    ----------
    variables : mapping
        This process's.
    names : iterable of str
        Names that are left out, beside those that tell what they hold.
    values : iterable of str
        Keys: a variable that holds one is left out whatever its name.
    """
    gone, held = set(names), [value for value in values if value]
    kept = {
        name: value
        for name, value in variables.items()
        if name not in gone
        and not _NAMES.search(name)
        and not name.startswith(("ASTRION_", "JPY_", "JUPYTER"))
        and not _VALUES.search(value)
        and not any(key == value or (len(key) >= _SHORTEST and key in value) for key in held)
    }
    return kept | _PLAIN


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
    out = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # Sockets of services lie in /run: one can be connected to though the folder is read-only.
    hidden = [Path("/tmp"), Path("/run"), *([home] if home != Path("/") and home.is_dir() else [])]
    for folder in hidden:
        out += ["--tmpfs", str(folder)] if folder.is_dir() else []
    for prefix in sorted({sys.prefix, sys.base_prefix}):
        if any(Path(prefix).is_relative_to(folder) for folder in hidden):
            out += ["--ro-bind", prefix, prefix]
    out += ["--bind", str(root), str(root), "--chdir", str(root)]
    out += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--"]
    return [*out, *command]


@dataclass(frozen=True, slots=True)
class Running:
    """A command that runs.

    Parameters
    ----------
    process : asyncio.subprocess.Process
        The supervisor.
    reader : asyncio.StreamReader
        What the command writes.
    mark : str
    """

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    mark: str
    _pipe: asyncio.ReadTransport

    def cut(self) -> None:
        """Cut the lifeline: everything that the command has started is killed."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)  # the command may have stopped its supervisor

    async def end(self) -> None:
        """Cut the lifeline, and see everything end; whoever cancels this meanwhile waits for it too."""
        self.cut()
        ends, cancelled = time.monotonic() + PATIENCE, None
        while True:
            try:
                await self._gone(ends - time.monotonic())
                break
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _gone(self, left: float) -> None:
        if self.process.returncode is None:
            try:
                async with asyncio.timeout(left):
                    await self.process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
                await self.process.wait()
        if (self.process.returncode or 0) < 0:  # somebody has killed the supervisor
            await asyncio.to_thread(hunt, self.mark)

    def close(self) -> None:
        """Read no more; whoever still holds the other end writes to nobody."""
        self._pipe.close()


async def start(line: Sequence[str], root: Path, variables: Mapping[str, str]) -> Running:
    """Start a command; when this is cancelled, nothing of it is left.

    Parameters
    ----------
    line : sequence of str
        Program and arguments.
    root : Path
        Where it runs.
    variables : mapping
        Its environment.

    Raises
    ------
    ToolError
        It cannot be started here.
    """
    starting = asyncio.ensure_future(_start(line, root, variables))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        while not starting.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((starting,))
        if not starting.cancelled() and starting.exception() is None:
            running = starting.result()
            try:
                await running.end()
            finally:
                running.close()
        raise


async def _start(line: Sequence[str], root: Path, variables: Mapping[str, str]) -> Running:
    if os.name != "posix":
        raise ToolError("run_command needs a POSIX system; on Windows start Jupyter in WSL")
    loop, mark = asyncio.get_running_loop(), secrets.token_hex(16)
    reader = asyncio.StreamReader()
    out, into = os.pipe()
    # A pipe of its own: what the event loop makes for a process stays open as long as anybody writes to it.
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out, "rb", 0))
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", supervisor.__file__, *line),
            cwd=root,
            env={**variables, MARK: mark},
            stdin=asyncio.subprocess.PIPE,
            stdout=into,
            stderr=into,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # no such folder, too long, a character that no command line holds
        pipe.close()
        raise ToolError(f"command: cannot be started ({error})") from None
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(into)
    return Running(process, reader, mark, pipe)


def hunt(mark: str) -> None:
    """Kill the processes that carry a mark, until there is none."""
    if not sys.platform.startswith("linux"):
        return
    said, ends = f"{MARK}={mark}".encode(), time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = [process for process in _processes() if _carries(process, said)]
        for step in (signal.SIGSTOP, signal.SIGKILL):
            for process in found:
                with contextlib.suppress(OSError):
                    os.kill(process, step)
        if not found:
            return
        time.sleep(0.01)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _carries(process: int, said: bytes) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return said in file.read().split(b"\0")
    except OSError:  # another user's, or gone
        return False
