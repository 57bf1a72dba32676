"""Conversations removed for good, also where the process that removes one ends in the middle.

The folder gets a hidden name first: from then on there is no such conversation, not even after a power loss. Then it
is emptied under the conversation's lock, which went along with it. So what somebody is still at can be told from what
a crash has left, and the next that comes by finishes the latter. The locks themselves go last, when nobody holds them
any more: some network drives keep a file that is open. Whoever finds something gone already goes on: two that remove
the same are no fault. Nothing is removed through a link: what it leads to is another's. Knows no index and no document.

Source: decision 31.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from ..disk import Files, is_link, reason
from ..errors import StorageError
from ..lock import LockFile
from .locks import LOCK, TURN, acquire

_OURS = re.compile(r"\.deleted-[A-Za-z0-9][A-Za-z0-9_.-]{0,127}-[0-9a-f]{8}")
_LAST = frozenset({LOCK, TURN})


def remove(folder: Path, files: Files) -> None:
    """Remove a conversation's folder.

    Raises
    ------
    ConversationLocked
        It is open, here or elsewhere.
    StorageError
        It is a link, and nothing was touched; or the system refuses: under its hidden name something may be left,
        which :func:`sweep` tries again.
    """
    if is_link(folder):
        raise StorageError(f"{folder} is a link, and nothing is removed through one: remove the link itself")
    with acquire(folder, files):
        trash = folder.with_name(f".deleted-{folder.name}-{secrets.token_hex(4)}")
        try:
            files.replace(folder, trash)
            files.fsync_dir(folder.parent)
        except OSError as error:
            raise StorageError(f"{folder} cannot be removed ({reason(error)})") from error
        _empty(trash, files, but=_LAST)
    _remove(trash, files)


def sweep(conversations: Path, names: Iterable[str], files: Files) -> None:
    """Finish what crashes have left of removals; what cannot be removed stays for another time.

    Parameters
    ----------
    conversations : Path
        The folder of all conversations.
    names : iterable of str
        What is in it.
    files : Files
    """
    for name in names:
        path = conversations / name
        if _OURS.fullmatch(name) and path.is_dir() and not is_link(path):
            with contextlib.suppress(StorageError):  # somebody is at it, or the disk cannot be written
                _finish(path, files)


def _finish(trash: Path, files: Files) -> None:
    try:
        lock = LockFile(trash / LOCK, create=False)
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    else:
        try:
            lock.take(0)
            _empty(trash, files, but=_LAST)
        finally:
            lock.close()
    _remove(trash, files)


def _remove(folder: Path, files: Files) -> None:
    _empty(folder, files)
    try:
        files.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageError(f"{folder} cannot be removed ({reason(error)})") from error


def _empty(folder: Path, files: Files, but: frozenset[str] = frozenset()) -> None:
    try:
        names = files.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{folder} cannot be removed ({reason(error)})") from error
    for name in names:
        path = folder / name
        if name in but:
            continue
        if path.is_dir() and not is_link(path):
            _remove(path, files)
            continue
        try:
            files.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"{path} cannot be removed ({reason(error)})") from error
