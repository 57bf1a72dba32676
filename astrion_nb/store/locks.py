"""Who has a conversation open: at most one process, and the others are told which.

The lock itself is the system's, dropped when its holder ends in whatever way, so a dead process
never keeps a conversation. Beside it ``owner.json`` names the holder (process id and the time that
process began), for the message that another one gets. Knows no document.

Source: decision 31.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from pathlib import Path

from ..disk import Files, replace_file
from ..errors import ConversationLocked, StorageError
from ..lock import locked
from .json_form import dump

OWNER = "owner.json"
LOCK = "conversation.lock"


def acquire(folder: Path, files: Files) -> contextlib.ExitStack:
    """Take a conversation for this process.

    Parameters
    ----------
    folder : Path
        The conversation's folder.
    files : Files

    Returns
    -------
    contextlib.ExitStack
        Gives the conversation up when closed.

    Raises
    ------
    ConversationLocked
        It is open, in another process or in this one; the owner is named.
    StorageError
        The lock file cannot be opened.
    """
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(locked(folder / LOCK, timeout=0))
    except StorageError as error:
        if error.__cause__ is not None:
            raise  # not held by anyone: the file cannot be opened at all
        raise ConversationLocked(f"{folder.name} is open in {owner(folder, files)}: close it there first") from None
    mine = {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname()}
    try:
        replace_file(files, folder / OWNER, (dump(mine),))
    except BaseException:
        stack.close()
        raise
    stack.callback(_forget, folder, files)
    return stack


def owner(folder: Path, files: Files) -> str:
    """Name the process that has a conversation open, as far as that is known."""
    try:
        data = json.loads(files.read(folder / OWNER))
        pid, started, host = data["pid"], data.get("started"), data.get("host")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "another process"
    if pid == os.getpid() and started == _started(pid):
        return f"this process ({pid})"
    if host == socket.gethostname() and started is not None and started != _started(pid):
        return "another process"  # the note is an older holder's: the new one has not written its own yet
    return f"process {pid} on {host}"


def _forget(folder: Path, files: Files) -> None:
    try:
        files.unlink(folder / OWNER)
    except OSError:
        pass  # the folder was removed, or moved away to be removed


def _started(pid: int) -> str | None:
    """Return when a process began, in the system's own terms, where it can be known cheaply."""
    if sys.platform != "linux":
        return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return f"{boot}:{text.rpartition(')')[2].split()[19]}"
