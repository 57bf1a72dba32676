"""Where things live on disk, and how a file is replaced safely.

One root holds everything that outlives a kernel: ``ASTRION_HOME`` (default
``~/.astrion/astrion/host``) followed by ``mutiagents`` (data model §1, decision 25). This module
gives the paths inside it, the folders shipped with the package, the language of prompts, one
atomic write and one lock between processes. It does not know what any file contains.

::

    mutiagents/
    ├── agents/            role files, shared with other applications; nothing else lies here
    ├── conversations/     one folder per conversation
    ├── state.json         global state
    └── astrion_nb/        this package's own: models.toml, offered-roles.json, locks/
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .errors import ConfigError, StorageError

Language = Literal["zh", "en"]

DEFAULT_ROOT = "~/.astrion/astrion/host"

_PACKAGE = Path(__file__).resolve().parent
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES})
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EISDIR})


@dataclass(frozen=True, slots=True, init=False)
class Home:
    """The folder that holds roles, conversations and settings.

    Nothing is created by making a ``Home``: a folder appears when something is first written into it.

    Parameters
    ----------
    root : Path, optional
        The folder that holds ``mutiagents``. Default: ``ASTRION_HOME``, else ``~/.astrion/astrion/host``.

    Raises
    ------
    ConfigError
        ``~`` in the path cannot be resolved, or ``ASTRION_HOME`` names a file.

    Notes
    -----
    Data model §1; decision 25.
    """

    root: Path

    def __init__(self, root: Path | str | None = None) -> None:
        given = root if root is not None else os.environ.get("ASTRION_HOME") or DEFAULT_ROOT
        try:
            path = Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise ConfigError(f"the home {str(given)!r} cannot be resolved ({error}): set ASTRION_HOME") from error
        # A folder that does not exist yet is made; not where a file, or a device, is in its way.
        there = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
        if os.path.lexists(there) and not there.is_dir():
            held = "is" if there == path else f"lies below {str(there)!r}, which is"
            raise ConfigError(f"the home {str(given)!r} {held} a file, not a folder: set ASTRION_HOME to a folder")
        object.__setattr__(self, "root", path)

    @property
    def base(self) -> Path:
        """The folder ``mutiagents``; everything lies below it."""
        return self.root / "mutiagents"

    @property
    def agents(self) -> Path:
        """Role files, ``<role_id>.md`` and nothing else."""
        return self.base / "agents"

    @property
    def conversations(self) -> Path:
        """One folder per conversation, and ``index.json``."""
        return self.base / "conversations"

    @property
    def state_file(self) -> Path:
        """``state.json``; write it under ``locked(home.lock_file("state"))``."""
        return self.base / "state.json"

    @property
    def own(self) -> Path:
        """This package's own folder, ``mutiagents/astrion_nb``."""
        return self.base / "astrion_nb"

    @property
    def models_file(self) -> Path:
        """``models.toml``: the models a person has configured."""
        return self.own / "models.toml"

    @property
    def offered_file(self) -> Path:
        """Which shipped roles have been copied into :attr:`agents` once."""
        return self.own / "offered-roles.json"

    def lock_file(self, name: str) -> Path:
        """Return the lock file for what ``name`` stands for, to be given to :func:`locked`."""
        return self.own / "locks" / f"{name}.lock"

    def create(self) -> Home:
        """Create the folders of the data model, where they are missing, and return this home.

        Raises
        ------
        StorageError
            A folder cannot be created.
        """
        for folder in (self.agents, self.conversations, self.own):
            make_folder(folder)
        return self


def builtin_roles() -> Path:
    """Return the folder of the shipped role files, ``<folder>/<language>/<role_id>.md``.

    Raises
    ------
    StorageError
        The installation lacks it.
    """
    return _shipped("_builtin_roles", "roles")


def builtin_notebooks() -> Path:
    """Return the folder of the shipped notebooks and their cassettes.

    Raises
    ------
    StorageError
        The installation lacks it.
    """
    return _shipped("_notebooks", "notebooks")


def _shipped(in_wheel: str, in_checkout: str) -> Path:
    """Find a shipped folder: inside the package (wheel) or beside it (checkout, editable install)."""
    inside = _PACKAGE / in_wheel
    if inside.is_dir():
        return inside
    beside = _PACKAGE.parent / in_checkout
    if beside.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return beside
    raise StorageError(f"the installed package lacks its folder {in_wheel}: install astrion-nb again")


def language(env: Mapping[str, str] | None = None) -> Language:
    """Return the language of prompts, shipped roles and interface.

    Parameters
    ----------
    env : mapping, optional
        Environment to read; default ``os.environ``.

    Returns
    -------
    {"zh", "en"}
        ``ASTRION_LANGUAGE``, else the locale's, else English (decision 32).

    Raises
    ------
    ConfigError
        ``ASTRION_LANGUAGE`` is neither ``zh`` nor ``en``.
    """
    env = os.environ if env is None else env
    asked = env.get("ASTRION_LANGUAGE", "").strip()
    if asked:
        return parse_language(asked, "ASTRION_LANGUAGE")
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := env.get(name):
            return "zh" if value.lower().startswith(("zh", "chinese")) else "en"
    if sys.platform == "win32" and env is os.environ:
        import locale

        return "zh" if (locale.getlocale()[0] or "").lower().startswith(("zh", "chinese")) else "en"
    return "en"


def parse_language(text: str, where: str) -> Language:
    """Read a language setting; ``zh_CN`` and the like are accepted.

    Raises
    ------
    ConfigError
        It is neither Chinese nor English; ``where`` is named.
    """
    short = text.strip().lower().replace("_", "-").split("-")[0]
    if short == "zh":
        return "zh"
    if short == "en":
        return "en"
    raise ConfigError(f"{where} is {text!r}; it can be 'zh' or 'en'")


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
        raise StorageError(f"the folder {folder} cannot be created ({_reason(error)})") from error


def write_atomic(path: Path, data: bytes, *, fsync: bool = True, exclusive: bool = False) -> None:
    """Replace a file's content at once: a reader sees the old content or the new, never a part.

    The bytes go to a file of a unique, hidden name in the same folder, which is flushed, synced and
    renamed; then the folder is synced. Missing folders are created. A symbolic link stays a link:
    what it points at is replaced. The permissions of an existing file are kept.

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
        The write failed. The old file is unchanged and no temporary file is left, except when the
        very last step, syncing the folder, fails: then the new content is in place.

    Notes
    -----
    Data model §8.2; decision 27.
    """
    if path.is_symlink() and not exclusive:
        path = path.resolve()
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
    try:
        try:
            _write_new(temporary, data, _mode_of(path), fsync)
            if exclusive:
                _publish_new(temporary, path, data, fsync)
            else:
                os.replace(temporary, path)
        finally:
            # After a successful replace the name is gone already.
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        if fsync:
            _sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({_reason(error)})") from error


def _write_new(path: Path, data: bytes, mode: int | None, fsync: bool) -> None:
    # O_EXCL: the name is ours or it is an error; 0o666 lets the umask decide, as for any new file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    with open(descriptor, "wb", closefd=True) as file:
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        if fsync:
            os.fsync(file.fileno())


def _publish_new(temporary: Path, path: Path, data: bytes, fsync: bool) -> None:
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
        try:
            _write_new(path, data, None, fsync)
        except FileExistsError:
            raise
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            raise


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return  # a folder cannot be opened there; the rename itself is journalled by NTFS
    else:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, timeout: float | None = 10.0) -> Iterator[None]:
    """Hold an exclusive lock between processes, and between threads of one, for the ``with`` block.

    The lock is advisory, and the system drops it when its holder ends in whatever way.

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
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StorageError(f"the lock {path} cannot be opened ({_reason(error)})") from error
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
            _unlock(descriptor)
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, path: Path) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK, errno.EAGAIN):
                return False
            raise StorageError(f"the lock {path} cannot be taken ({_reason(error)})") from error
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
            raise StorageError(f"the lock {path} cannot be taken ({_reason(error)})") from error
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
