"""From the workspace's root to a path, one folder after the other: no link is opened, each is read and walked.

Knows no workspace; what may be on the way is the caller's to check.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import ToolError
from ..given import shown
from .paths import outside

BY_DESCRIPTOR = (
    hasattr(os, "O_NOFOLLOW") and {os.open, os.mkdir, os.stat} <= os.supports_dir_fd and os.scandir in os.supports_fd
)
"""Whether this system opens files by their folder's descriptor."""
MOST_LINKS = 40
DEEPEST = 100
"""Folders within folders, beyond which nothing is opened."""

FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
FOLDER = FLAGS | os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# Not blocking: a pipe opens at once, and is refused then.
FILE = FLAGS | os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Check = Callable[[Sequence[str], os.stat_result | None], None]


class Walk:
    """From the root to a path, folder by folder, each opened by its parent's descriptor."""

    def __init__(self, roots: tuple[Path, ...], path: str, make: bool, check: Check) -> None:
        self._roots = roots
        self._path = path
        self._make = make
        self._check = check
        try:
            self._open = [os.open(roots[0], FOLDER)]
        except OSError as error:
            raise ToolError(f"the workspace {roots[0]} cannot be opened ({error.strerror})") from None
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
            self._enter(part, self._make and ".." not in todo)
        return self._open[-1], None, list(self._names)

    def _target(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self._open[-1])
        except OSError:
            return None  # no link, or not there

    def _from(self, target: str) -> list[str]:
        """Return what is to be walked for a link's target, from where the link stands."""
        if os.path.isabs(target):
            root = next((root for root in self._roots if Path(target).is_relative_to(root)), None)
            if root is None:
                raise outside(self._path)
            inner = Path(target).relative_to(root)
            while len(self._open) > 1:
                os.close(self._open.pop())
            self._names.clear()
            return list(inner.parts)
        return [part for part in target.split("/") if part not in ("", ".")]

    def _enter(self, part: str, make: bool) -> None:
        names = [*self._names, part]
        self._check(names, None)
        if len(names) > DEEPEST:
            raise ToolError(f"path: {shown(self._path)} lies more than {DEEPEST} folders deep")
        try:
            inner = self._folder(part, make)
        except OSError as error:
            raise told(self._path, error) from None
        self._open.append(inner)
        self._names = names
        self._check(names, os.fstat(inner))

    def _folder(self, part: str, make: bool) -> int:
        try:
            return os.open(part, FOLDER, dir_fd=self._open[-1])
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=self._open[-1])
        return os.open(part, FOLDER, dir_fd=self._open[-1])

    def close(self) -> None:
        """Close every descriptor."""
        for handle in self._open:
            os.close(handle)


class Resolved:
    """The same where folders have no descriptors: resolved as a whole, and checked."""

    def __init__(self, roots: tuple[Path, ...], path: str, make: bool, check: Check) -> None:
        self._root = roots[0]
        self._path = path
        self._make = make
        self._check = check

    def to(self, parts: Sequence[str]) -> tuple[Path, str | None, list[str]]:
        """Return the folder's path, the last component, and all of them."""
        try:
            for depth in range(1, len(parts)):  # as a system with descriptors has it: ``missing/..`` is not there
                if parts[depth] == "..":
                    self._root.joinpath(*parts[:depth]).stat()
            whole = self._root.joinpath(*parts).resolve()
            if not whole.is_relative_to(self._root):
                raise outside(self._path)
            where = list(whole.relative_to(self._root).parts)
            if not where:
                return self._root, None, where
            if len(where) > DEEPEST + 1:
                raise ToolError(f"path: {shown(self._path)} lies more than {DEEPEST} folders deep")
            for depth in range(1, len(where)):
                here = self._root.joinpath(*where[:depth])
                self._check(where[:depth], here.stat() if here.exists() else None)
            if self._make:
                whole.parent.mkdir(parents=True, exist_ok=True)
            elif not whole.parent.is_dir():
                whole.parent.stat()
                raise NotADirectoryError
        except FileExistsError:  # of a folder that is to be made
            raise told(self._path, NotADirectoryError()) from None
        except OSError as error:
            raise told(self._path, error) from None
        except RuntimeError:
            raise ToolError(f"path: {shown(self._path)} leads through too many links") from None
        return whole.parent, whole.name, where

    def close(self) -> None:
        """Nothing is held."""


def identity(kind: os.stat_result) -> tuple[int, int]:
    """Return what tells a folder from every other, whatever its name."""
    return kind.st_dev, kind.st_ino


def is_junction(kind: os.stat_result) -> bool:
    """Say whether it is what Windows has beside links: a folder that is another one."""
    return getattr(kind, "st_reparse_tag", 0) == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)


def odd(path: str, mode: int) -> ToolError:
    """Return the error that something is no regular file."""
    if stat.S_ISLNK(mode):
        return ToolError(f"path: {shown(path)} was changed to a link meanwhile; try again")
    what = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
    return ToolError(f"path: {shown(path)} is {what}, not a file")


def told(path: str, error: OSError) -> ToolError:
    """Return an error of the system in a model's words."""
    if isinstance(error, FileNotFoundError):
        return ToolError(f"path: there is no {shown(path)}; search_workspace finds files by name")
    if error.errno == errno.ELOOP:
        return ToolError(f"path: {shown(path)} was changed to a link meanwhile; try again")
    if isinstance(error, NotADirectoryError):
        return ToolError(f"path: a part of {shown(path)} is a file, not a folder")
    return ToolError(f"path: {shown(path)}: {error.strerror or type(error).__name__}")
