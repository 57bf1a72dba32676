"""The disk: one door to it, and one way to replace a file safely.

Every file operation that can be torn by a kill or a power loss is a method of :class:`Files`, so that
a test can record them and build each state that may be left. It does not know what any file contains.

Source: data model §8.2, decision 27.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from .errors import StorageError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a system says that has no room left, on the disk or for this user."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES})
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EISDIR})
_BINARY = getattr(os, "O_BINARY", 0)


class Files(Protocol):
    """What the store asks of a file system; every method may raise ``OSError``."""

    def open_append(self, path: Path) -> int:
        """Open a file for appending, created when missing; return a handle."""
        ...

    def create(self, path: Path, mode: int | None = None) -> int:
        """Create a file that does not exist yet, with the permissions of any new one unless told; return a handle."""
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

    def leads_to(self, path: Path, handle: int) -> bool:
        """Say whether a path still leads to the file that was opened."""
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

    def create(self, path: Path, mode: int | None = None) -> int:
        # 0o666 lets the umask decide; permissions that are kept are none of its business.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(handle, mode)
        return handle

    def write(self, handle: int, data: bytes) -> int:
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def close(self, handle: int) -> None:
        os.close(handle)

    def leads_to(self, path: Path, handle: int) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(handle))
        except (FileNotFoundError, NotADirectoryError):
            return False

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


def is_link(path: Path) -> bool:
    """Say whether a path leads to something that lies elsewhere: a symbolic link, or a junction of Windows."""
    return os.path.islink(path) or getattr(os.path, "isjunction", os.path.islink)(path)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents where they are missing.

    Raises
    ------
    StorageError
        It cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder {folder} cannot be created ({reason(error)})") from error


def check_replaceable(path: Path) -> None:
    """Refuse to replace what is no file: a folder, a pipe, a device; links are followed.

    Raises
    ------
    StorageError
        Something that is no regular file has the name, or it cannot be told what has.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return  # nothing has the name; whether it can be given is seen when the file is written
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({reason(error)}); name another file") from error
    if not stat.S_ISREG(mode):
        held = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise StorageError(f"{path} cannot be written: it is {held}, which nothing replaces; name another file")


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


def replace_file(
    files: Files,
    path: Path,
    chunks: Iterable[bytes],
    *,
    mode: int | None = None,
    sync: bool = True,
    publish: Callable[[Path, Path], None] | None = None,
) -> int:
    """Replace a file's content at once: written beside it, synced, renamed.

    The folder is not synced: until the caller does that, a power loss may bring the old content back.

    Parameters
    ----------
    files : Files
    path : Path
        Its folder exists.
    chunks : iterable of bytes
        The content; may be computed while it is written.
    mode : int, optional
        Permissions of the new file; default: those of any new one.
    sync : bool
        Wait until the content is on the disk before it gets its name.
    publish : callable, optional
        ``publish(temporary, path)`` gives the finished file its name; default: it replaces what has it.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    FileExistsError
        From ``publish``.
    StorageError
        The write failed; what was there is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
    size = 0
    try:
        handle = files.create(temporary) if mode is None else files.create(temporary, mode)
        try:
            try:
                for chunk in chunks:
                    write_all(files, handle, chunk)
                    size += len(chunk)
                if sync:
                    files.fsync(handle)
            finally:
                files.close(handle)
            (publish or files.replace)(temporary, path)
        except BaseException:
            try:
                files.unlink(temporary)
            except OSError:
                pass  # the first failure is the one to report; opening a conversation sweeps it up
            raise
    except FileExistsError:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({reason(error)}); what was there is unchanged") from error
    return size


def write_atomic(path: Path, data: bytes, *, fsync: bool = True, exclusive: bool = False) -> None:
    """Replace a file's content at once: a reader sees the old content or the new, never a part.

    The bytes go to a file of a unique, hidden name in the same folder, which is flushed, synced and
    renamed; then the folder is synced. Missing folders are created. A symbolic link stays a link:
    what it points at is replaced. The permissions of an existing file are kept. What is no regular
    file (a folder, a pipe, a device) is left alone.

    Parameters
    ----------
    path : Path
        The file to write.
    data : bytes
        Its whole new content.
    fsync : bool
        Wait until file and rename are on the disk.
    exclusive : bool
        Only create: an existing file is never replaced, not even one that appears meanwhile.

    Raises
    ------
    FileExistsError
        ``exclusive`` and the file exists.
    StorageError
        Something that is no file has the name, or the write failed. What was there is unchanged and no
        temporary file is left, except when the very last step, syncing the folder, fails: then the new
        content is in place.

    Notes
    -----
    Data model §8.2; decision 27.
    """
    if not exclusive:
        check_replaceable(path)
        path = path.resolve() if path.is_symlink() else path
    make_folder(path.parent)
    files = RealFiles()
    replace_file(files, path, (data,), mode=_mode_of(path), sync=fsync, publish=_publish_new if exclusive else None)
    if fsync:
        try:
            files.fsync_dir(path.parent)
        except OSError as error:
            raise StorageError(f"the folder {path.parent} cannot be synced ({reason(error)})") from error


def _publish_new(temporary: Path, path: Path) -> None:
    """Give the finished file its name unless the name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # Without hard links (FAT, some network drives) creation is still exclusive, but a reader
        # may meet a part of the file while it is being written.
        _copy_new(temporary, path)
    temporary.unlink()


def _copy_new(source: Path, path: Path) -> None:
    with open(path, "xb") as file:
        try:
            file.write(source.read_bytes())
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            raise


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
