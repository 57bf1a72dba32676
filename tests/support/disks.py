"""A disk that knows what a power loss may leave of it.

Every operation of the store's port is carried out in memory as POSIX promises it, and no more:
content is safe after ``fsync``, a name after ``fsync_dir``. After each operation the disk can give
the pictures that a machine might find afterwards.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Node:
    """A file: what the system holds and what is surely on the disk."""

    cached: bytes = b""
    safe: bytes = b""


@dataclass
class Folder:
    """A folder: its names as safely stored, and the changes since, oldest first."""

    safe: dict[str, Node | None] = field(default_factory=dict)
    changes: list[dict[str, Node | bool | None]] = field(default_factory=list)

    def names(self, which: Collection[int] | None = None) -> dict[str, Node | None]:
        """Return the names after the changes of these numbers; ``None`` for all of them."""
        out = dict(self.safe)
        for number, change in enumerate(self.changes):
            if which is not None and number not in which:
                continue
            for name, node in change.items():
                if node is False:
                    out.pop(name, None)
                else:
                    assert not isinstance(node, bool)
                    out[name] = node
        return out


class Picture:
    """A disk as a machine finds it: for reading, and as the start of a new :class:`Disk`."""

    def __init__(self, files: dict[Path, bytes], folders: set[Path]) -> None:
        self.files = files
        self.folders = folders

    def read(self, path: Path) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def listdir(self, path: Path) -> list[str]:
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        return sorted(one.name for one in itertools.chain(self.files, self.folders) if one.parent == path)


class Disk:
    """The store's file port in memory.

    Parameters
    ----------
    root : Path
        Exists, safely.
    start : Picture, optional
        What is there at the beginning.
    after : callable, optional
        Called with the disk after each operation that changes something.
    """

    def __init__(self, root: Path, start: Picture | None = None, after: Callable[[Disk], None] | None = None) -> None:
        self.root = root
        self.folders: dict[Path, Folder] = {root: Folder()}
        self.handles: dict[int, Node] = {}
        self.numbers = itertools.count(3)
        self.after = after
        if start is not None:
            for folder in sorted(start.folders):
                self.folders.setdefault(folder, Folder())
                if folder != root:
                    self.folders[folder.parent].safe[folder.name] = None
            for path, data in start.files.items():
                self.folders[path.parent].safe[path.name] = Node(data, data)

    def _changed(self) -> None:
        if self.after is not None:
            self.after(self)

    def _find(self, path: Path) -> Node | None:
        folder = self.folders.get(path.parent)
        return None if folder is None else folder.names().get(path.name)

    def _new(self, path: Path) -> int:
        folder = self.folders.get(path.parent)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
        node = Node()
        folder.changes.append({path.name: node})
        return self._handle(node)

    def _handle(self, node: Node) -> int:
        number = next(self.numbers)
        self.handles[number] = node
        return number

    def open_append(self, path: Path) -> int:
        node = self._find(path)
        handle = self._new(path) if node is None else self._handle(node)
        self._changed()
        return handle

    def create(self, path: Path, mode: int | None = None) -> int:
        if self._find(path) is not None:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        handle = self._new(path)
        self._changed()
        return handle

    def write(self, handle: int, data: bytes) -> int:
        # A system may take a part only; long writes come in two.
        part = data if len(data) < 3 else data[: (len(data) + 1) // 2]
        self.handles[handle].cached += part
        self._changed()
        return len(part)

    def fsync(self, handle: int) -> None:
        node = self.handles[handle]
        node.safe = node.cached
        self._changed()

    def truncate(self, handle: int, size: int) -> None:
        node = self.handles[handle]
        assert size <= len(node.cached), "a file is never made longer by cutting it"
        node.cached = node.cached[:size]
        self._changed()

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def leads_to(self, path: Path, handle: int) -> bool:
        return self._find(path) is self.handles[handle]

    def read(self, path: Path) -> bytes:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return node.cached

    def listdir(self, path: Path) -> list[str]:
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        return sorted(self.folders[path].names())

    def mkdir(self, path: Path) -> None:
        if path in self.folders:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        self.folders[path.parent].changes.append({path.name: None})
        self.folders[path] = Folder()
        self._changed()

    def replace(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        node = self._find(source)
        assert node is not None
        self.folders[source.parent].changes.append({source.name: False, target.name: node})
        self._changed()

    def unlink(self, path: Path) -> None:
        if self._find(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        self.folders[path.parent].changes.append({path.name: False})
        self._changed()

    def rmdir(self, path: Path) -> None:
        self.folders[path.parent].changes.append({path.name: False})
        del self.folders[path]

    def fsync_dir(self, path: Path) -> None:
        folder = self.folders[path]
        folder.safe = folder.names()
        folder.changes = []
        self._changed()

    # ------------------------------------------------------------------ afterwards

    def killed(self) -> Picture:
        """Return what is there when only the process ends."""
        return self._picture(lambda folder: None, lambda node: node.cached)

    def powerless(self) -> Picture:
        """Return the least that a power loss leaves: only what was synced."""
        return self._picture(lambda folder: (), lambda node: node.safe)

    def torn(self, dice: random.Random) -> Picture:
        """Return something between: of each folder the first changes, of each file some of its new bytes."""
        return self._picture(lambda folder: range(dice.randint(0, len(folder.changes))), _some(dice))

    def reordered(self, dice: random.Random) -> Picture:
        """Return what a disk leaves that keeps no order: of each folder any of its changes, of each file as above."""

        def some(folder: Folder) -> set[int]:
            return {number for number in range(len(folder.changes)) if dice.random() < 0.5}

        return self._picture(some, _some(dice))

    def _picture(self, which: Callable[[Folder], Collection[int] | None], content: Callable[[Node], bytes]) -> Picture:
        files: dict[Path, bytes] = {}
        folders = {self.root}
        waiting = [self.root]
        while waiting:
            path = waiting.pop()
            folder = self.folders.get(path)
            if folder is None:
                continue
            for name, node in folder.names(which(folder)).items():
                if node is None:
                    folders.add(path / name)
                    waiting.append(path / name)
                else:
                    files[path / name] = content(node)
        return Picture(files, folders)


def _some(dice: random.Random) -> Callable[[Node], bytes]:
    """Return what gives some of a file's new bytes; space that was given to it and never written holds zeros."""

    def content(node: Node) -> bytes:
        if dice.random() < 0.3:
            return node.safe
        if not node.cached.startswith(node.safe):
            return dice.choice((node.safe, node.cached))
        some = node.cached[: dice.randint(len(node.safe), len(node.cached))]
        return some if dice.random() < 0.7 else some.ljust(len(node.cached), b"\0")

    return content
