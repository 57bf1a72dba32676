"""The workspace: the one place that turns a path into a file, and lets no path lead out.

Every component is opened by its parent's descriptor and never through a link: a link is read, and
its target is walked the same way from where it stands, so what is swapped between a look and a use
can only end in an error. What is opened is a regular file or a folder; a file is replaced as a
whole, so another name of it (a hard link) keeps the old bytes.

Where a system has no such descriptors (Windows), the resolved path is checked before it is opened,
which a swap in between can deceive.

Knows no tool and no model.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from ..errors import ToolError
from ..given import shown
from .paths import is_protected, outside, parts_of

BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether this system opens files by their folder's descriptor."""
MOST_LINKS = 40
DEEPEST = 100
"""Folders within folders, beyond which none is looked into."""
TEMPORARY = ".astrion-"
"""Names of unfinished files begin so."""

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = _FLAGS | os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# Not blocking: a pipe opens at once, and is refused then.
_FILE = _FLAGS | os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of the workspace.

    Parameters
    ----------
    path : str
        Relative to the workspace, with ``/``.
    folder : bool
    size : int
        Bytes; 0 for a folder.
    """

    path: str
    folder: bool
    size: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a write came to.

    Parameters
    ----------
    path : str
        Relative to the workspace, links followed.
    before : bytes or None
        What was there; ``None`` for a new file.
    """

    path: str
    before: bytes | None


class Workspace:
    """The files that agents may touch.

    Parameters
    ----------
    root : Path
        An existing folder; links in its own path are followed once, now.
    closed : sequence of Path
        Folders beneath it that are none of the agents' business, as the conversations' own.

    Raises
    ------
    ToolError
        The root is no folder.
    """

    def __init__(self, root: Path, closed: Sequence[Path] = ()) -> None:
        self._said = root.absolute()
        self.root = root.resolve()
        if not self.root.is_dir():
            raise ToolError(f"the workspace {root} is no folder; create it, or choose another")
        beneath = [path.resolve() for path in closed]
        self._closed = tuple(path.relative_to(self.root).parts for path in beneath if path.is_relative_to(self.root))

    # -- reading ------------------------------------------------------------------------

    def open(self, path: str) -> tuple[BinaryIO, str]:
        """Open a regular file for reading.

        Returns
        -------
        tuple of file and str
            The file, and its path beneath the workspace with links followed.

        Raises
        ------
        ToolError
            No such file, a folder, a device, or a path that leads out.
        """
        with self._found(path) as (parent, name, parts):
            where = "/".join(parts)
            if name is None:
                raise ToolError(f"path: {shown(path)} is a folder, not a file")
            try:
                handle = self._open(parent, name, _FILE)
            except OSError as error:
                raise _told(path, error) from None
        kind = os.fstat(handle)
        if not stat.S_ISREG(kind.st_mode):
            os.close(handle)
            what = "a folder" if stat.S_ISDIR(kind.st_mode) else "a device, pipe or socket"
            raise ToolError(f"path: {shown(path)} is {what}, not a file")
        return os.fdopen(handle, "rb"), where

    def read(self, path: str, limit: int) -> bytes:
        """Return a file's bytes.

        Parameters
        ----------
        path : str
        limit : int
            Bytes; a longer file is refused.

        Raises
        ------
        ToolError
            As :meth:`open`, or the file is too long.
        """
        file, _ = self.open(path)
        with file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ToolError(f"path: {shown(path)} has more than {limit:,} bytes")
        return data

    def entries(
        self, path: str = ".", *, skip: Callable[[str, bool], bool] = lambda path, folder: False
    ) -> Iterator[Entry]:
        """Yield what lies beneath a folder, folders before what they hold, in order of names.

        Links are passed over, and so are closed folders and unfinished files. A folder that cannot be
        read is passed over too.

        Parameters
        ----------
        path : str
        skip : callable
            ``skip(path, folder)``: whether to pass over it, and all that it holds.

        Raises
        ------
        ToolError
            There is no such folder.
        """
        with self._found(path) as (parent, name, parts):
            if name is None:
                top = os.dup(parent) if isinstance(parent, int) else parent
            else:
                try:
                    top = self._open(parent, name, _FOLDER) if isinstance(parent, int) else parent / name
                except OSError as error:
                    if error.errno == errno.ENOTDIR:
                        raise ToolError(f"path: {shown(path)} is a file, not a folder") from None
                    raise _told(path, error) from None
        return self._beneath(top, tuple(parts), skip)

    def _beneath(
        self, folder: int | Path, parts: tuple[str, ...], skip: Callable[[str, bool], bool]
    ) -> Iterator[Entry]:
        try:
            try:
                found = sorted(os.scandir(folder), key=lambda item: item.name)
            except OSError:
                return
            for item in found:
                here = (*parts, item.name)
                if item.name.startswith(TEMPORARY) or here in self._closed:
                    continue
                try:
                    kind = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone meanwhile
                name, is_folder = "/".join(here), stat.S_ISDIR(kind.st_mode)
                if skip(name, is_folder):
                    continue
                if stat.S_ISREG(kind.st_mode):
                    yield Entry(name, False, kind.st_size)
                elif is_folder:
                    yield Entry(name, True, 0)
                    if len(here) >= DEEPEST:
                        continue
                    try:
                        within = isinstance(folder, int)
                        inner = self._open(folder, item.name, _FOLDER) if within else Path(item.path)
                    except OSError:
                        continue
                    yield from self._beneath(inner, here, skip)
        finally:
            if isinstance(folder, int):
                os.close(folder)

    # -- writing ------------------------------------------------------------------------

    def write(self, path: str, data: bytes, *, over: bytes | Literal["any"] | None = "any") -> Written:
        """Replace a file as a whole, or create it with the folders it needs.

        Parameters
        ----------
        path : str
        data : bytes
        over : bytes, None or "any"
            What the file has to hold at this moment, ``None`` for no file: what somebody else wrote meanwhile
            is not overwritten.

        Raises
        ------
        ToolError
            The path leads out or is protected, is no regular file, has changed, or the system refuses.
        """
        with self._found(path, writing=True) as (parent, name, parts):
            if name is None:
                raise ToolError(f"path: {shown(path)} is a folder, not a file")
            if is_protected(tuple(parts)):
                raise _protected(path)
            try:
                before, mode = self._held(parent, name, path)
                if over != "any" and over != before:
                    raise ToolError(f"path: {shown(path)} was changed meanwhile; read it again, and write then")
                self._replace(parent, name, data, mode)
            except OSError as error:
                raise _told(path, error) from None
        return Written("/".join(parts), before)

    def remove(self, path: str) -> None:
        """Remove a regular file.

        Raises
        ------
        ToolError
            As :meth:`write`.
        """
        with self._found(path, writing=True) as (parent, name, parts):
            if name is None:
                raise ToolError(f"path: {shown(path)} is a folder, not a file")
            if is_protected(tuple(parts)):
                raise _protected(path)
            try:
                self._held(parent, name, path)
                if isinstance(parent, int):
                    os.unlink(name, dir_fd=parent)
                else:
                    (parent / name).unlink()
            except OSError as error:
                raise _told(path, error) from None

    def _held(self, parent: int | Path, name: str, path: str) -> tuple[bytes | None, int | None]:
        """Return the bytes and the mode of what is there, ``None`` for nothing."""
        try:
            handle = self._open(parent, name, _FILE)
        except FileNotFoundError:
            return None, None
        with os.fdopen(handle, "rb") as file:
            kind = os.fstat(handle)
            if not stat.S_ISREG(kind.st_mode):
                raise ToolError(f"path: {shown(path)} is no regular file, so it is not replaced")
            return file.read(), stat.S_IMODE(kind.st_mode)

    def _replace(self, parent: int | Path, name: str, data: bytes, mode: int | None) -> None:
        unfinished = f"{TEMPORARY}{secrets.token_hex(8)}"
        handle = self._open(parent, unfinished, _FLAGS | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(handle, mode & 0o777)  # never set-user-id or the like
                os.fsync(handle)
            if isinstance(parent, int):
                os.replace(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
            else:
                os.replace(parent / unfinished, parent / name)
        except BaseException:
            with contextlib.suppress(OSError):
                if isinstance(parent, int):
                    os.unlink(unfinished, dir_fd=parent)
                else:
                    (parent / unfinished).unlink()
            raise

    # -- finding ------------------------------------------------------------------------

    @staticmethod
    def _open(parent: int | Path, name: str, flags: int, mode: int = 0o777) -> int:
        if isinstance(parent, int):
            return os.open(name, flags, mode, dir_fd=parent)
        return os.open(parent / name, flags, mode)

    @contextlib.contextmanager
    def _found(self, path: str, *, writing: bool = False) -> Iterator[tuple[int | Path, str | None, list[str]]]:
        """Walk to a path: its open folder (or, without descriptors, the folder's path), its name, all its components.

        The name is ``None`` where the path is the workspace itself or ends in ``..``.
        """
        base = self._said if Path(path).is_relative_to(self._said) else self.root
        parts = parts_of(path, base, writing=writing)
        if writing and is_protected(parts):  # before any folder is made on the way
            raise _protected(path)
        walk = _Walk(self.root, path, make=writing) if BY_DESCRIPTOR else _Resolved(self.root, path, make=writing)
        try:
            parent, name, where = walk.to(parts)
            if any(tuple(where[: len(closed)]) == closed for closed in self._closed):
                raise ToolError(f"path: {shown(path)} is closed to tools: it belongs to the conversations' own files")
            yield parent, name, where
        finally:
            walk.close()


class _Walk:
    """From the root to a path, folder by folder, each opened by its parent's descriptor."""

    def __init__(self, root: Path, path: str, *, make: bool) -> None:
        self._path = path
        self._make = make
        try:
            self._open = [os.open(root, _FOLDER)]
        except OSError as error:
            raise ToolError(f"the workspace {root} cannot be opened ({error.strerror})") from None
        self._root = root
        self._names: list[str] = []
        self._links = 0

    def to(self, parts: Sequence[str]) -> tuple[int, str | None, list[str]]:
        """Walk; returns the last folder's descriptor, the last component, and all of them."""
        todo = list(reversed(parts))
        while todo:
            part = todo.pop()
            if part == "..":
                if not self._names:
                    raise outside(self._path)
                os.close(self._open.pop())
                self._names.pop()
                continue
            target = self._target(part)
            if target is not None:
                self._links += 1
                if self._links > MOST_LINKS:
                    raise ToolError(f"path: {shown(self._path)} leads through too many links")
                todo.extend(reversed(self._from(target)))
                continue
            if not todo:
                return self._open[-1], part, [*self._names, part]
            self._enter(part)
        return self._open[-1], None, list(self._names)

    def _target(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self._open[-1])
        except OSError:
            return None  # no link, or not there

    def _from(self, target: str) -> list[str]:
        """Return what is to be walked for a link's target, from where the link stands."""
        if os.path.isabs(target):
            try:
                inner = Path(target).relative_to(self._root)
            except ValueError:
                raise outside(self._path) from None
            while len(self._open) > 1:
                os.close(self._open.pop())
            self._names.clear()
            return list(inner.parts)
        return [part for part in target.split("/") if part not in ("", ".")]

    def _enter(self, part: str) -> None:
        try:
            inner = os.open(part, _FOLDER, dir_fd=self._open[-1])
        except FileNotFoundError as error:
            if not self._make:
                raise _told(self._path, error) from None
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=self._open[-1])
                inner = os.open(part, _FOLDER, dir_fd=self._open[-1])
            except OSError as problem:
                raise _told(self._path, problem) from None
        except OSError as error:
            raise _told(self._path, error) from None
        self._open.append(inner)
        self._names.append(part)

    def close(self) -> None:
        """Close every descriptor."""
        for handle in self._open:
            os.close(handle)


class _Resolved:
    """The same where folders have no descriptors: resolved as a whole, and checked."""

    def __init__(self, root: Path, path: str, *, make: bool) -> None:
        self._root = root
        self._path = path
        self._make = make

    def to(self, parts: Sequence[str]) -> tuple[Path, str | None, list[str]]:
        """Return the folder's path, the last component, and all of them."""
        whole = self._root.joinpath(*parts).resolve()
        if not whole.is_relative_to(self._root):
            raise outside(self._path)
        where = list(whole.relative_to(self._root).parts)
        if not where:
            return self._root, None, where
        if self._make:
            whole.parent.mkdir(parents=True, exist_ok=True)
        return whole.parent, whole.name, where

    def close(self) -> None:
        """Nothing is held."""


def _protected(path: str) -> ToolError:
    return ToolError(f"path: {shown(path)} belongs to version control, whose files no tool writes")


def _told(path: str, error: OSError) -> ToolError:
    """Return an error of the system in a model's words."""
    if isinstance(error, FileNotFoundError):
        return ToolError(f"path: there is no {shown(path)}; search_workspace finds files by name")
    if error.errno == errno.ELOOP:
        return ToolError(f"path: {shown(path)} was changed to a link meanwhile; try again")
    if isinstance(error, NotADirectoryError):
        return ToolError(f"path: a part of {shown(path)} is a file, not a folder")
    return ToolError(f"path: {shown(path)}: {error.strerror}")
