"""Where things live on disk.

One root holds everything that outlives a kernel: ``ASTRION_HOME`` (default
``~/.astrion/astrion/host``) followed by ``mutiagents`` (data model §1, decision 25). This module
gives the paths inside it, the folders shipped with the package, what its optional parts need and the
language of prompts. It does not know what any file contains, and how one is written is :mod:`.disk`'s to say.

::

    mutiagents/
    ├── agents/            role files, shared with other applications; nothing else lies here
    ├── conversations/     one folder per conversation
    ├── state.json         global state
    └── astrion_nb/        this package's own: models.toml, offered-roles.json, locks/
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import given
from .errors import ConfigError, StorageError

Language = Literal["zh", "en"]

DEFAULT_ROOT = "~/.astrion/astrion/host"

_PACKAGE = Path(__file__).resolve().parent


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
        given.path("the home", root)
        said = root if root is not None else os.environ.get("ASTRION_HOME", "").strip() or DEFAULT_ROOT
        if not os.fspath(said):
            raise ConfigError("the home is empty; use the path of a folder, or None for ASTRION_HOME")
        try:
            path = Path(said).expanduser().absolute()
        except RuntimeError as error:
            raise ConfigError(f"the home {str(said)!r} cannot be resolved ({error}): set ASTRION_HOME") from error
        # A folder that does not exist yet is made; not where a file, or a device, is in its way.
        there = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
        if os.path.lexists(there) and not there.is_dir():
            held = "is" if there == path else f"lies below {str(there)!r}, which is"
            raise ConfigError(f"the home {str(said)!r} {held} a file, not a folder: set ASTRION_HOME to a folder")
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
        """Return the lock file for what ``name`` stands for, to be given to :func:`~astrion_nb.lock.locked`."""
        return self.own / "locks" / f"{name}.lock"


def as_home(what: str, value: Home | Path | str | None) -> Home:
    """Return the home that a caller means: a ``Home``, the path of its folder, or ``None`` for the environment's.

    Raises
    ------
    ConfigError
        It is neither; ``what`` is named.
    """
    if isinstance(value, Home):
        return value
    given.path(what, value)
    return Home(value)


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


def extra_command(*extras: str) -> str:
    """Return the command that installs what optional parts of the package need, wherever the package itself is from."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        said = requires("astrion-nb") or []
    except PackageNotFoundError:
        said = []
    marks = tuple(f"extra == '{extra}'" for extra in extras)
    parts = (line.replace('"', "'").partition(";") for line in said)
    wanted = [f"'{what.strip()}'" for what, _, marker in parts if marker.strip() in marks]
    return "pip install " + (" ".join(wanted) or f"'.[{','.join(extras)}]'")


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
    raise ConfigError(f"{where} is {given.shown(text)}; it can be 'zh' or 'en'")
