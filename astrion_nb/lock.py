"""One lock between processes, and between threads of one.

Knows nothing of what it protects.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .disk import make_folder, reason
from .errors import StorageError


@contextlib.contextmanager
def locked(path: Path, *, timeout: float | None = 10.0) -> Iterator[None]:
    """Hold an exclusive lock between processes, and between threads of one, for the ``with`` block.

    The lock is advisory, and the system drops it when its holder ends in whatever way. A child that the
    holder forks does not hold it.

    Parameters
    ----------
    path : Path
        The lock file, named ``*.lock``; created empty when missing and left in place. Never the file
        that is protected: replacing that one would take the lock away with it.
    timeout : float or None
        Seconds to wait for the present holder; 0 = do not wait; ``None`` = without a limit.

    Raises
    ------
    StorageError
        The lock was not given in time, or the lock file cannot be opened.
    ValueError
        ``path`` is not named ``*.lock``.
    """
    if path.suffix != ".lock":
        raise ValueError(f"{path.name} is not a lock file: give a path that ends in .lock")
    make_folder(path.parent)
    try:
        with _opening:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            _open.add(descriptor)
    except OSError as error:
        raise StorageError(f"the lock {path} cannot be opened ({reason(error)})") from error
    process = os.getpid()
    try:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while not _try_lock(descriptor, path):
            if deadline is not None and time.monotonic() >= deadline:
                raise StorageError(f"another process holds {path.name} for longer than {timeout:g} s: try again")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        try:
            yield
        finally:
            if os.getpid() == process:
                _unlock(descriptor)
    finally:
        # A fork's copy is closed already, and its number may be another file's by now.
        if os.getpid() == process:
            with _opening:
                _open.discard(descriptor)
                os.close(descriptor)


_open: set[int] = set()
"""Descriptors of lock files."""
_opening = threading.Lock()


def _forked() -> None:
    """Give up the copies of the locks in a forked child: any copy would keep them beyond their holder's end."""
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_forked)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, path: Path) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK, errno.EAGAIN):
                return False
            raise StorageError(f"the lock {path} cannot be taken ({reason(error)})") from error
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int, path: Path) -> bool:
        try:
            # flock, not lockf: it belongs to this descriptor, so it also holds between threads.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StorageError(f"the lock {path} cannot be taken ({reason(error)})") from error
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
