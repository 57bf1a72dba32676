"""The two small files beside the conversations: ``index.json`` and ``state.json``.

The index is a cache of what the folders say; the global state remembers the last conversation and
the highest agent number ever given (never a source of numbers). Both are read and written under a
lock between processes, and no conversation needs either of them to be opened.

Source: data model §3, §8.3; decisions 30, 31.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..disk import Files, is_temporary, replace_file
from ..errors import ConversationBroken, StorageError
from ..given import shown
from ..home import Home
from ..lock import locked
from . import documents as docs
from .forms import unknown as other_keys
from .json_form import dump, read_document
from .version import check_version, is_version

_ENTRY_KEYS = frozenset({"title", "created_at", "updated_at", "agent_count", "status"})

_log = logging.getLogger("astrion_nb.store")


class Index:
    """``index.json`` and ``state.json`` of a home.

    Parameters
    ----------
    home : Home
    files : Files
    clock : callable
        Returns seconds since the epoch.
    """

    __slots__ = ("_clock", "_files", "_home")

    def __init__(self, home: Home, files: Files, clock: Callable[[], float]) -> None:
        self._home = home
        self._files = files
        self._clock = clock

    @contextlib.contextmanager
    def entries(self) -> Iterator[dict[str, Any]]:
        """Hold the index for changing; it is written when it has changed.

        A missing or broken index is an empty one: who lists the conversations fills it again. One that a later
        release has written is not used, and left as it is.

        Raises
        ------
        StorageError
            It cannot be read or written, or another process holds it for too long.
        """
        path = self._home.conversations / docs.INDEX
        with locked(self._home.lock_file("index")):
            try:
                index = read_document(self._files, path)
            except ConversationBroken as error:
                _log.warning("%s: rebuilding it", error)
                index = None
            if index is not None and not self._is_ours(index):
                yield {}
                return
            before = dict(index or {})
            after = dict(before)
            yield after
            if after != before or (index is None and after):
                replace_file(self._files, path, (dump(after),))

    def _is_ours(self, index: dict[str, Any]) -> bool:
        """Say whether this release may change the index; where not, that is logged."""
        try:
            for key in ("schema_version", "version"):
                if is_version(index.get(key)):
                    check_version(index[key], self._home.conversations / docs.INDEX)
        except ConversationBroken as error:
            _log.warning("%s; until then it is not used", error)
            return False
        return True

    def sweep(self) -> None:
        """Remove unfinished copies of the two files that crashes have left; one that somebody writes now stays."""
        for path, lock in ((self._home.conversations / docs.INDEX, "index"), (self._home.state_file, "state")):
            with contextlib.suppress(OSError, StorageError):
                if self._unfinished(path):
                    with locked(self._home.lock_file(lock), timeout=0):
                        for name in self._unfinished(path):
                            self._files.unlink(path.with_name(name))

    def _unfinished(self, path: Path) -> list[str]:
        names = self._files.listdir(path.parent)
        return [name for name in names if is_temporary(name) and name.startswith(f".{path.name}.")]

    def put(self, conversation_id: str, entry: dict[str, Any]) -> None:
        """Bring one conversation's line up to date; unknown keys of the line stay."""
        with self.entries() as index:
            known = index.get(conversation_id)
            unknown = other_keys(known, _ENTRY_KEYS) if isinstance(known, dict) else {}
            index[conversation_id] = {**entry, **unknown}

    def last(self) -> str | None:
        """Return the id that ``state.json`` names as the last conversation."""
        data = self._read_state()
        name = data.get("last_conversation_id") if data else None
        return name if isinstance(name, str) else None

    def remember(self, conversation_id: str | None, highest: int) -> None:
        """Bring ``state.json`` up to date (§3).

        Parameters
        ----------
        conversation_id : str or None
            Becomes the last one; ``None`` leaves it.
        highest : int
            The greatest agent number of a conversation; the counter never falls.

        Raises
        ------
        ConversationBroken
            The file was written by a later release.
        StorageError
            It cannot be written.
        """
        path = self._home.state_file
        with locked(self._home.lock_file("state")):
            now = docs.local_time(self._clock())
            data = self._read_state()
            if data is None and path.exists():
                with contextlib.suppress(OSError):
                    self._files.replace(path, path.with_name(path.name + ".broken"))
            known = data or {}
            counter = known.get("agent_id_counter")
            counter = counter if isinstance(counter, int) else 0
            last = known.get("last_conversation_id")
            if data is not None and counter >= highest and conversation_id in (None, last):
                return
            out = {
                "version": known.get("version", "1.0"),
                "last_conversation_id": conversation_id or last,
                "agent_id_counter": max(counter, highest),
                "created_at": known.get("created_at", now),
                "updated_at": now,
            }
            replace_file(self._files, path, (dump({**out, **other_keys(known, frozenset(out))}),))

    def _read_state(self) -> dict[str, Any] | None:
        path = self._home.state_file
        try:
            data = read_document(self._files, path)
        except ConversationBroken as error:
            _log.warning("%s", error)
            return None
        version = data.get("version", "1.0") if data else "1.0"
        if not is_version(version):
            _log.warning("%s: %s is not a version", path, shown(version))
            return None
        check_version(version, path)
        return data
