"""Who has a conversation open: at most one process, and the others are told which.

The lock itself is the system's, dropped when its holder ends in whatever way, so a dead process
never keeps a conversation. Beside it ``owner.json`` names the holder (process id and the time that
process began), for the message that another one gets.

Whoever writes takes a second lock for as long as he writes, his *turn*, and looks whether the first is
still his: another process may take a conversation over, by putting another lock file in its place in a
turn of its own. So the former owner writes nothing afterwards, and nothing of his is cut in the middle.
Knows no document.

Source: decision 31.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from ..disk import NO_ROOM, Files, make_folder, replace_file
from ..errors import ConversationLocked, StorageError
from ..lock import LockFile, locked
from .json_form import dump

OWNER = "owner.json"
LOCK = "conversation.lock"
TURN = "turn.lock"
TURN_LIMIT = 10.0
"""Seconds to wait for whoever writes a conversation's files right now."""


class Refusal(NamedTuple):
    """Why a conversation must not be written now, and whether that can change."""

    why: str
    for_good: bool


class Ownership:
    """A conversation that this process has open.

    Made by :func:`acquire` and :func:`take_over`.

    Parameters
    ----------
    folder : Path
    files : Files
    mine : LockFile
        Taken.
    """

    __slots__ = ("_at", "_files", "_folder", "_mine", "_turns")

    def __init__(self, folder: Path, files: Files, mine: LockFile) -> None:
        self._folder = folder
        self._files = files
        self._mine = mine
        self._turns = LockFile(folder / TURN)
        self._at = os.stat(folder)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Refusal | None]:
        """Keep others from taking the conversation over meanwhile; yields why it must not be written, if it must not.

        That the folder is gone, or is another one, is for whoever writes to find.
        """
        try:
            self._turns.take(TURN_LIMIT)
        except StorageError as error:
            yield Refusal(str(error), for_good=False)
            return
        try:
            owned = self._mine.stands or not self._is_there()
            yield None if owned else Refusal(self._taken(), for_good=True)
        finally:
            self._turns.give_back()

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._folder), self._at)
        except OSError:
            return False

    def _taken(self) -> str:
        by = owner(self._folder, self._files)
        return (
            f"{self._folder.name} was taken over by {by}, and what has happened here since is not saved; "
            "close it here, or open it again when it is closed there"
        )

    def close(self) -> None:
        """Give the conversation up."""
        if self._mine.stands:
            _forget(self._folder, self._files)
        self._turns.close()
        self._mine.give_back()
        self._mine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def acquire(folder: Path, files: Files) -> Ownership:
    """Take a conversation for this process.

    Parameters
    ----------
    folder : Path
        The conversation's folder.
    files : Files

    Returns
    -------
    Ownership
        Gives the conversation up when closed.

    Raises
    ------
    ConversationLocked
        It is open, in another process or in this one; the owner is named.
    StorageError
        The lock file cannot be opened.
    """
    make_folder(folder)
    while True:
        mine = LockFile(folder / LOCK)
        try:
            mine.take(0)
            if mine.stands:
                break
        except StorageError as error:
            mine.close()
            if error.__cause__ is not None:
                raise  # not held by anyone: the file cannot be locked at all
            raise ConversationLocked(
                f"{folder.name} is open in {owner(folder, files)}: close it there first, "
                "or resume it with --read-only or --take-over (Team: read_only, take_over)"
            ) from None
        mine.close()
    try:
        found = Ownership(folder, files, mine)
    except BaseException:
        mine.close()
        raise
    try:
        note = {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname()}
        replace_file(files, folder / OWNER, (dump(note),))
    except StorageError as error:
        # The lock is held all the same, and without a note others are told of "another process".
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in NO_ROOM:
            found.close()
            raise
    except BaseException:
        found.close()
        raise
    return found


def take_over(folder: Path, files: Files) -> Ownership:
    """Take a conversation for this process, also from another one, or from this one, that has it open.

    Raises
    ------
    ConversationLocked
        Somebody else was quicker.
    StorageError
        Its owner writes and comes to no end, or a file cannot be written.
    """
    with locked(folder / TURN, timeout=TURN_LIMIT):
        replace_file(files, folder / LOCK, ())
    return acquire(folder, files)


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
