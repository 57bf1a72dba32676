"""A conversation's files as they stood together at one moment, for who reads what another process is writing.

Each document is replaced as a whole, but not all of them at once, and the journal is cut when they are in place: some
read before that and some after it would be a state that never was. So the journal is read before and after the
documents. If it has only grown, it holds all that they lack, and they are as if read together; else it was cut
meanwhile, and everything is read again. Knows no state and no lock.

Source: decisions 27, 31.
"""

from __future__ import annotations

from pathlib import Path

from ..disk import Files, RealFiles
from . import documents as docs

TRIES = 20
"""Readings, each of which a cut journal would have to spoil; what the last one found is taken as it is."""


class _Held(RealFiles):
    """What was read: files by path, with the error where there was one, and the names of the agents' folders."""

    __slots__ = ("_content", "_files")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._content: dict[Path, bytes | list[str] | OSError] = {}

    def keep(self, path: Path) -> None:
        try:
            self._content[path] = self._files.read(path)
        except OSError as error:
            self._content[path] = error

    def keep_names(self, path: Path) -> list[str]:
        try:
            names = self._files.listdir(path)
        except OSError as error:
            self._content[path] = error
            return []
        self._content[path] = names
        return names

    def read(self, path: Path) -> bytes:
        content = self._content.get(path, FileNotFoundError(path))
        if isinstance(content, OSError):
            raise content
        assert isinstance(content, bytes)
        return content

    def listdir(self, path: Path) -> list[str]:
        content = self._content.get(path, FileNotFoundError(path))
        if isinstance(content, OSError):
            raise content
        assert isinstance(content, list)
        return content

    def has(self, path: Path) -> bytes:
        content = self._content[path]
        return content if isinstance(content, bytes) else b""


def of_one_moment(folder: Path, files: Files) -> Files:
    """Read a conversation's files; to be loaded from what is returned."""
    journal = folder / docs.JOURNAL
    for _ in range(TRIES):
        held = _Held(files)
        held.keep(journal)
        before, stood = held.has(journal), _standing(folder)
        for name in (docs.METADATA, docs.RUNTIME, docs.MESSAGES):
            held.keep(folder / name)
        agents = folder / docs.AGENTS
        for name in held.keep_names(agents):
            for document in (docs.METADATA, docs.MESSAGES):
                held.keep(agents / name / document)
        held.keep(journal)
        # An empty journal may have grown and been cut: then the document that is written last is another one.
        if held.has(journal).startswith(before) and (before or _standing(folder) == stood):
            break
    return held


def _standing(folder: Path) -> tuple[int, int, int] | None:
    try:
        found = (folder / docs.METADATA).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
