"""The one door to the disk, and the two JSON forms that go through it.

Every file operation of the store is a method of :class:`Files`, so that a test can record them and
build each state that a kill or a power loss may leave. Documents are written byte for byte as the
data model's recipe writes them (``json.dumps(data, ensure_ascii=False, indent=2)``), lines of the
journal compactly. Knows no conversation.

Source: data model §8.2, decision 27.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from ..errors import ConversationBroken, StorageError

_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EISDIR})
_BINARY = getattr(os, "O_BINARY", 0)


class Files(Protocol):
    """What the store asks of a file system; every method may raise ``OSError``."""

    def open_append(self, path: Path) -> int:
        """Open a file for appending, created when missing; return a handle."""
        ...

    def create(self, path: Path) -> int:
        """Create a file that does not exist yet; return a handle."""
        ...

    def write(self, handle: int, data: bytes) -> int:
        """Write at the end of the file; return how many bytes were taken."""
        ...

    def fsync(self, handle: int) -> None:
        """Wait until what was written is on the disk."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def close(self, handle: int) -> None:
        """Give the handle back."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the whole file."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    def mkdir(self, path: Path) -> None:
        """Create a folder that does not exist yet."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Give a file or folder another name; an existing file of that name is replaced at once."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""
        ...

    def fsync_dir(self, path: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        ...


class RealFiles:
    """The operating system's files."""

    __slots__ = ()

    def open_append(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)

    def write(self, handle: int, data: bytes) -> int:
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def close(self, handle: int) -> None:
        os.close(handle)

    def read(self, path: Path) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: Path) -> None:
        if sys.platform == "win32":
            return  # a folder cannot be opened there; NTFS journals the rename itself
        else:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in _NO_DIRECTORY_SYNC:
                    raise
            finally:
                os.close(descriptor)


def reason(error: OSError) -> str:
    """Return why the operating system refused, in its words."""
    return error.strerror or type(error).__name__


def write_all(files: Files, handle: int, data: bytes) -> None:
    """Write all of ``data``; a system may take only a part of it at once.

    Raises
    ------
    OSError
        The disk is full, or the write failed.
    """
    written = files.write(handle, data)
    while written < len(data):
        step = files.write(handle, data[written:])
        if step <= 0:
            raise OSError(errno.EIO, "the system took no bytes")
        written += step


def is_temporary(name: str) -> bool:
    """Say whether a name is one that :func:`replace_file` gives to unfinished files."""
    return name.startswith(".") and name.endswith(".tmp")


def replace_file(files: Files, path: Path, chunks: Iterable[bytes]) -> int:
    """Replace a file's content at once: written beside it, synced, renamed.

    The folder is not synced: until the caller does that, a power loss may bring the old content back.

    Parameters
    ----------
    files : Files
    path : Path
        Its folder exists.
    chunks : iterable of bytes
        The content; may be computed while it is written.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    StorageError
        The write failed; the old file is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    size = 0
    try:
        handle = files.create(temporary)
        try:
            try:
                for chunk in chunks:
                    write_all(files, handle, chunk)
                    size += len(chunk)
                files.fsync(handle)
            finally:
                files.close(handle)
            files.replace(temporary, path)
        except BaseException:
            try:
                files.unlink(temporary)
            except OSError:
                pass  # the first failure is the one to report; opening the conversation sweeps it up
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({reason(error)}); its old content stands") from error
    return size


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form: {str(value)[:80]!r}")


_EVEN: frozenset[type] = frozenset({str, int, bool, type(None)})


def awkward(value: object) -> bool:
    """Say whether a value holds a number that orjson prints otherwise than ``json`` does.

    Those are NaN, the infinities, and floats with an exponent.
    """
    if isinstance(value, Mapping):
        items: Iterable[object] = value.values()
    elif isinstance(value, list | tuple):
        items = value
    else:
        return isinstance(value, float) and not (1e-4 <= abs(value) < 1e16 or value == 0.0)
    for item in items:  # noqa: SIM110 - nearly all are texts, and a generator costs more than the loop
        if type(item) not in _EVEN and awkward(item):
            return True
    return False


def dump(data: Any, *, exact: bool | None = None) -> bytes:
    """Return a document's bytes: the data model's recipe (§8.2), UTF-8.

    Parameters
    ----------
    data : JSON value
        May hold any mapping in the place of a dict.
    exact : bool, optional
        Whether to print with ``json`` itself. Default: only when :func:`awkward` says so.

    Returns
    -------
    bytes
        Equal to ``json.dumps(data, ensure_ascii=False, indent=2)``. A lone surrogate, which has no
        UTF-8 form, is written as its ``\\uXXXX`` escape.
    """
    if not (awkward(data) if exact is None else exact):
        try:
            return orjson.dumps(data, _plain, orjson.OPT_INDENT_2)
        except TypeError:
            pass  # a big integer, a lone surrogate, a key that is no string: json knows them
    return json.dumps(data, ensure_ascii=False, indent=2, default=_plain).encode("utf-8", "backslashreplace")


def dump_line(data: Any, *, exact: bool = False) -> bytes:
    """Return one line of a journal, its line break included; ``exact`` keeps NaN and the infinities."""
    if not exact:
        try:
            return orjson.dumps(data, _plain, orjson.OPT_APPEND_NEWLINE)
        except TypeError:
            pass  # as in dump
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def parse(data: bytes) -> Any:
    """Read JSON as fast as possible; what orjson refuses (NaN, lone surrogates) ``json`` reads.

    Raises
    ------
    ValueError
        It is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def read_document(
    files: Files, path: Path, *, fast: bool = False, sizes: dict[Path, int] | None = None
) -> dict[str, Any] | None:
    """Read a JSON object from a file.

    Parameters
    ----------
    files : Files
    path : Path
    fast : bool
        For long files: integers beyond 64 bits become floats.
    sizes : dict, optional
        Gets the number of bytes read.

    Returns
    -------
    dict or None
        ``None`` when there is no such file.

    Raises
    ------
    ConversationBroken
        The file is not a JSON object; file, line and column are named.
    StorageError
        The file cannot be read.
    """
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({reason(error)})") from error
    if sizes is not None:
        sizes[path] = len(data)
    try:
        # utf-8-sig: an editor may have put a byte order mark in front.
        value = parse(data) if fast else json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConversationBroken(f"{path}, {place}: {error.msg}; mend the file or put a copy back") from error
    except RecursionError as error:
        raise ConversationBroken(f"{path}: nested too deeply; mend the file or put a copy back") from error
    except UnicodeDecodeError as error:
        raise ConversationBroken(f"{path}, byte {error.start}: not UTF-8; mend the file or put a copy back") from error
    if not isinstance(value, dict):
        raise ConversationBroken(f"{path}: holds a {type(value).__name__} where an object belongs")
    return value
