"""The store's door to the disk, behind which the process dies at a chosen moment.

Every operation that leaves a trace is a row of points: *before* anything of a write, *torn* with half of its
bytes, *after* it, after the sync, after the rename. Points are counted from 1 as they are passed; at the chosen
one the process gets SIGKILL, from itself, with real files behind it.

What is synced is not told to the disk: a killed process loses nothing that the system has taken, synced or not.
What a power loss leaves is another matter, see ``support.disks``.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from astrion_nb.disk import RealFiles


class MortalFiles(RealFiles):
    """The operating system's files, with points at which the process may die.

    Parameters
    ----------
    root : Path
        Names in labels are relative to it.
    kill_at : int
        The number of the point that is the last; 0 for none.
    last_words : callable
        Called with the label of the last point.

    Attributes
    ----------
    points : list of str
        Labels of the points passed: phase, operation, file.
    """

    __slots__ = ("_handles", "_kill_at", "_last_words", "_lock", "points", "root")

    def __init__(self, root: Path, kill_at: int = 0, last_words: Callable[[str], None] = lambda label: None) -> None:
        self.root = root
        self.points: list[str] = []
        self._kill_at = kill_at
        self._last_words = last_words
        self._handles: dict[int, str] = {}
        self._lock = threading.Lock()

    def _point(self, phase: str, operation: str, name: str) -> None:
        with self._lock:
            label = f"{phase} {operation} {name}"
            self.points.append(label)
            if len(self.points) == self._kill_at:
                self._last_words(label)
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # the signal is on its way: nothing more happens here

    def _name(self, path: Path) -> str:
        name = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name
        if path.name.endswith(".tmp"):
            name = f"{Path(name).parent}/{path.name.split('.json')[0]}.json.tmp"
        return name

    def open_append(self, path: Path) -> int:
        handle = super().open_append(path)
        self._handles[handle] = self._name(path)
        self._point("after", "open", self._name(path))
        return handle

    def create(self, path: Path, mode: int | None = None) -> int:
        handle = super().create(path, mode)
        self._handles[handle] = self._name(path)
        self._point("after", "create", self._name(path))
        return handle

    def write(self, handle: int, data: bytes) -> int:
        name = self._handles[handle]
        self._point("before", "write", name)
        half = (len(data) + 1) // 2
        written = super().write(handle, data[:half])
        self._point("torn", "write", name)
        while written < len(data):
            written += super().write(handle, data[written:])
        self._point("after", "write", name)
        return written

    def fsync(self, handle: int) -> None:
        self._point("after", "fsync", self._handles[handle])

    def truncate(self, handle: int, size: int) -> None:
        super().truncate(handle, size)
        self._point("after", "truncate", self._handles[handle])

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self._point("after", "mkdir", self._name(path))

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self._point("after", "rename", self._name(target))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._point("after", "unlink", self._name(path))

    def rmdir(self, path: Path) -> None:
        super().rmdir(path)
        self._point("after", "rmdir", self._name(path))

    def fsync_dir(self, path: Path) -> None:
        # Without the name: which of several folders is synced first is nobody's promise.
        self._point("after", "sync", "a folder")
