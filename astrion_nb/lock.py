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


class LockFile:
    """An open lock file, which can be taken and given back any number of times.

    A child that its process forks has no part in it.

    Parameters
    ----------
    path : Path
        Named ``*.lock``; created empty when missing. Its folder exists.
    create : bool
        Whether it may be created.

    Raises
    ------
    StorageError
        It cannot be opened.
    ValueError
        ``path`` is not named ``*.lock``.
    """

    __slots__ = ("_closed", "_descriptor", "_process", "path")

    def __init__(self, path: Path, *, create: bool = True) -> None:
        if path.suffix != ".lock":
            raise ValueError(f"{path.name} is not a lock file: give a path that ends in .lock")
        self.path = path
        self._process = os.getpid()
        self._closed = False
        try:
            with _opening:
                self._descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
                _open.add(self._descriptor)
        except OSError as error:
            raise StorageError(f"the lock {path} cannot be opened ({reason(error)})") from error

    def take(self, timeout: float | None) -> None:
        """Take the lock; seconds to wait for the present holder, 0 = do not wait, ``None`` = without a limit.

        Raises
        ------
        StorageError
            The lock was not given in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while not _try_lock(self._descriptor, self.path):
            if deadline is not None and time.monotonic() >= deadline:
                raise StorageError(f"another process holds {self.path.name} for longer than {timeout:g} s: try again")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def give_back(self) -> None:
        """Give the lock back; harmless when the file is closed."""
        if os.getpid() == self._process and not self._closed:
            _unlock(self._descriptor)

    @property
    def stands(self) -> bool:
        """Whether the path still leads to this file: another one there is another lock."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def close(self) -> None:
        """Close the file, which drops the lock."""
        # A fork's copy is closed already, and its number may be another file's by now.
        if os.getpid() == self._process:
            with _opening:
                if not self._closed:
                    self._closed = True
                    _open.discard(self._descriptor)
                    os.close(self._descriptor)


@contextlib.contextmanager
def locked(path: Path, *, timeout: float | None = 10.0) -> Iterator[LockFile]:
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
    while True:
        make_folder(path.parent)
        file = LockFile(path)
        try:
            file.take(timeout)
            if file.stands:
                break
        except BaseException:
            file.close()
            raise
        file.close()  # it was replaced between opening and taking: that lock is nobody's any more
    try:
        yield file
    finally:
        file.give_back()
        file.close()


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
