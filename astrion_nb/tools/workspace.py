"""The workspace: the one place that turns a path into a file, and lets no path lead out.

Every component is opened by its parent's descriptor and never through a link: a link is read, and
its target is walked the same way from where it stands, so what is swapped between a look and a use
can only end in an error. What is opened is a regular file or a folder; a file is replaced as a
whole, so another name of it (a hard link) keeps the old bytes. Two threads that write one file do so
one after the other; another program's write between the last look and the replacing is lost.

Where a system has no such descriptors (Windows), the resolved path is checked before it is opened,
which a swap in between can deceive.

Knows no tool and no model.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from ..errors import ToolError
from ..given import shown
from .paths import TEMPORARY, is_protected, parts_of
from .walking import BY_DESCRIPTOR, DEEPEST, FILE, FLAGS, FOLDER, Resolved, Walk, identity, is_junction, odd, told

MOST_REPLACED = 64_000_000
"""Bytes of a file that is replaced; a longer one could not be put back."""

_REPLACING = threading.Lock()


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
            handle, _ = self._regular(parent, name, path)
        return os.fdopen(handle, "rb"), "/".join(parts)

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

    def folder(self, path: str) -> str:
        """Return a folder's path beneath the workspace, links followed; empty for the workspace itself.

        Raises
        ------
        ToolError
            There is no such folder.
        """
        with self._found(path) as (parent, name, parts):
            self._close(self._top(parent, name, path))
            return "/".join(parts)

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
            top = self._top(parent, name, path)
        found = self._beneath(top, tuple(parts), skip, self._closed_now())
        next(found)  # from now on it closes what it holds, whether or not anybody reads on
        return (entry for entry in found if entry is not None)

    @staticmethod
    def _top(parent: int | Path, name: str | None, path: str) -> int | Path:
        """Open a folder; without descriptors, see that it is one."""
        try:
            if isinstance(parent, int):
                return os.dup(parent) if name is None else os.open(name, FOLDER, dir_fd=parent)
            top = parent if name is None else parent / name
            os.scandir(top).close()
            return top
        except NotADirectoryError:
            raise ToolError(f"path: {shown(path)} is a file, not a folder") from None
        except OSError as error:
            raise told(path, error) from None

    @staticmethod
    def _close(folder: int | Path) -> None:
        if isinstance(folder, int):
            os.close(folder)

    def _beneath(
        self,
        folder: int | Path,
        parts: tuple[str, ...],
        skip: Callable[[str, bool], bool],
        closed: frozenset[tuple[int, int]],
    ) -> Iterator[Entry | None]:
        """Yield ``None``, and then what lies beneath a folder, whose descriptor is closed in the end."""
        try:
            yield None
            try:
                with os.scandir(folder) as items:
                    found = sorted(items, key=lambda item: item.name)
            except OSError:
                return
            for item in found:
                here = (*parts, item.name)
                if TEMPORARY.fullmatch(item.name):
                    continue
                try:
                    kind = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone meanwhile
                name, is_folder = "/".join(here), stat.S_ISDIR(kind.st_mode)
                if is_folder and (here in self._closed or identity(kind) in closed or is_junction(kind)):
                    continue
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
                        inner = self._open(folder, item.name, FOLDER) if within else Path(item.path)
                    except OSError:
                        continue
                    yield from self._beneath(inner, here, skip, closed)
        finally:
            self._close(folder)

    # -- writing ------------------------------------------------------------------------

    def write(self, path: str, data: bytes, *, over: bytes | Literal["any"] | None = "any") -> Written:
        """Replace a file as a whole, or create it with the folders it needs.

        Parameters
        ----------
        path : str
        data : bytes
        over : bytes, None or "any"
            What the file has to hold at this moment, ``None`` for no file: what another thread wrote meanwhile
            is not overwritten.

        Raises
        ------
        ToolError
            The path leads out or is protected, is no regular file, has changed, or the system refuses.
        """
        with self._found(path, writing=True, make=not isinstance(over, bytes)) as (parent, name, parts):
            kind = self._writable(parent, name, path)
            assert name is not None
            try:
                with self._unfinished(parent, data, None if kind is None else kind.st_mode) as unfinished, _REPLACING:
                    before = self._held(parent, name, path)
                    if over != "any" and over != before:
                        raise ToolError(f"path: {shown(path)} was changed meanwhile; read it again, and write then")
                    if isinstance(parent, int):
                        os.replace(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
                    else:
                        os.replace(parent / unfinished, parent / name)
            except OSError as error:
                raise told(path, error) from None
        return Written("/".join(parts), before)

    def remove(self, path: str) -> None:
        """Remove a regular file.

        Raises
        ------
        ToolError
            As :meth:`write`.
        """
        with self._found(path, writing=True) as (parent, name, _):
            self._writable(parent, name, path)
            assert name is not None
            try:
                self._unlink(parent, name)
            except OSError as error:
                raise told(path, error) from None

    def _writable(self, parent: int | Path, name: str | None, path: str) -> os.stat_result | None:
        """Return what is there, ``None`` for nothing; replacing it asks for no permission of the file itself."""
        try:
            kind = self._look(parent, name, path)
        except FileNotFoundError:
            return None
        assert name is not None
        if isinstance(parent, int):
            allowed = os.access(name, os.W_OK, dir_fd=parent)
        else:
            allowed = os.access(parent / name, os.W_OK)
        if not allowed or not kind.st_mode & 0o222:
            raise ToolError(f"path: {shown(path)} is read-only, so it is left as it is; write another file")
        return kind

    def _held(self, parent: int | Path, name: str, path: str) -> bytes | None:
        """Return the bytes of what is there, ``None`` for nothing."""
        try:
            self._look(parent, name, path)
        except FileNotFoundError:
            return None
        handle, kind = self._regular(parent, name, path)
        with os.fdopen(handle, "rb") as file:
            if kind.st_size > MOST_REPLACED or len(data := file.read(MOST_REPLACED + 1)) > MOST_REPLACED:
                raise ToolError(
                    f"path: {shown(path)} has more than {MOST_REPLACED:,} bytes, so it is not replaced; "
                    "write another file"
                )
        return data

    @contextlib.contextmanager
    def _unfinished(self, parent: int | Path, data: bytes, mode: int | None) -> Iterator[str]:
        """Write a file of a name of its own, which is gone in the end unless it got another."""
        name = f".astrion-{secrets.token_hex(8)}"
        handle = self._open(parent, name, FLAGS | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(handle, mode & 0o777)  # never set-user-id or the like
                os.fsync(handle)
            yield name
        finally:
            with contextlib.suppress(OSError):
                self._unlink(parent, name)

    @staticmethod
    def _unlink(parent: int | Path, name: str) -> None:
        if isinstance(parent, int):
            os.unlink(name, dir_fd=parent)
        else:
            (parent / name).unlink()

    # -- finding ------------------------------------------------------------------------

    @staticmethod
    def _open(parent: int | Path, name: str, flags: int, mode: int = 0o777) -> int:
        if isinstance(parent, int):
            return os.open(name, flags, mode, dir_fd=parent)
        return os.open(parent / name, flags, mode)

    @staticmethod
    def _look(parent: int | Path, name: str | None, path: str) -> os.stat_result:
        """Return what a regular file is; nothing is opened, so nothing happens to anything else.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        ToolError
            Something else is, or the system refuses.
        """
        if name is None:
            raise odd(path, stat.S_IFDIR)
        try:
            if isinstance(parent, int):
                kind = os.stat(name, dir_fd=parent, follow_symlinks=False)
            else:
                kind = os.lstat(parent / name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise told(path, error) from None
        if not stat.S_ISREG(kind.st_mode):
            raise odd(path, kind.st_mode)
        return kind

    def _regular(self, parent: int | Path, name: str | None, path: str) -> tuple[int, os.stat_result]:
        """Open a regular file for reading, and return what it is."""
        try:
            self._look(parent, name, path)
            assert name is not None
            handle = self._open(parent, name, FILE)
        except OSError as error:
            raise told(path, error) from None
        kind = os.fstat(handle)
        if not stat.S_ISREG(kind.st_mode):  # something else by now
            os.close(handle)
            raise odd(path, kind.st_mode)
        return handle, kind

    @contextlib.contextmanager
    def _found(
        self, path: str, *, writing: bool = False, make: bool = False
    ) -> Iterator[tuple[int | Path, str | None, list[str]]]:
        """Walk to a path: its open folder (or, without descriptors, the folder's path), its name, all its components.

        The name is ``None`` where the path is the workspace itself or ends in ``..``.
        """
        base = self._said if Path(path).is_relative_to(self._said) else self.root
        parts = parts_of(path, base, writing=writing)
        closed = self._closed_now()

        def check(names: Sequence[str], kind: os.stat_result | None) -> None:
            """Refuse a path on the way, before anything is made in it."""
            shut = any(tuple(names[: len(one)]) == one for one in self._closed)
            if shut or (kind is not None and identity(kind) in closed):
                raise ToolError(f"path: {shown(path)} is closed to tools: it belongs to the conversations' own files")
            if writing and is_protected(tuple(names)):
                raise ToolError(f"path: {shown(path)} belongs to version control, whose files no tool writes")

        check(parts, None)
        roots = (self.root, self._said)
        walk = Walk(roots, path, make, check) if BY_DESCRIPTOR else Resolved(roots, path, make, check)
        try:
            parent, name, where = walk.to(parts)
            check(where, None)
            if name is not None:
                with contextlib.suppress(OSError):
                    check(where, os.stat(name, dir_fd=parent) if isinstance(parent, int) else os.stat(parent / name))
            yield parent, name, where
        finally:
            walk.close()

    def _closed_now(self) -> frozenset[tuple[int, int]]:
        """Return what the closed folders are, whatever their names: some file systems have several for one."""
        found = []
        for parts in self._closed:
            with contextlib.suppress(OSError):
                found.append(identity(self.root.joinpath(*parts).stat()))
        return frozenset(found)
